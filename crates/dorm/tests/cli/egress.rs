//! `dorm sbx egress`.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn the_egress_is_replaced_and_shown() {
    let world = World::new().await;
    world.named("web").await;
    let shown = async || {
        let described = world.dorm(&["sbx", "describe", "web"]).await;
        let rows = described.rows();
        rows.iter().find(|row| row[0] == "egress").unwrap()[1].clone()
    };
    let closed = world.json(&["sbx", "egress", "web", "closed", "-o", "json"]).await;
    assert_eq!(closed["egress"], "closed");
    assert_eq!(shown().await, "closed");
    let rules = "deny:203.0.113.0/24,allow:*.example.com,default:public";
    let changed = world.json(&["sbx", "egress", "web", rules, "-o", "json"]).await;
    let wanted = json!({"rules": [{"deny": "203.0.113.0/24"}, {"allow": "*.example.com"}], "default": "public"});
    assert_eq!(changed["egress"], json!({"ordered": wanted}));
    assert_eq!(shown().await, rules);
    assert_eq!(world.dorm(&["sbx", "egress", "web", "198.51.100.0/24,example.com"]).await.code, 0);
    assert_eq!(shown().await, "198.51.100.0/24,example.com");
    let why = world.dorm(&["events", "--sandbox", "web"]).await;
    assert!(why.text().contains("egress_set"), "{}", why.text());
}

#[tokio::test]
async fn wrong_policies_are_refused_with_their_reason() {
    let world = World::new().await;
    world.named("web").await;
    world.dorm(&["sbx", "egress", "web", "deny:1.1.1.1"]).await.failed(2, "default:deny or default:public");
    world.dorm(&["sbx", "egress", "web", "everything"]).await.failed(2, "'everything' is neither public, closed");
    let none = world.dorm(&["sbx", "egress", "web", "none"]).await;
    none.failed(4, "next: set the egress 'closed', which refuses every connection");
    let never = ["sbx", "egress", "web", "allow:1.1.0.0/16,deny:1.1.1.1,default:deny"];
    world.dorm(&never).await.failed(2, "the egress rule 'deny 1.1.1.1' can never match");
}
