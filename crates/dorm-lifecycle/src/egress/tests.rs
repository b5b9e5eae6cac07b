use super::*;

fn list(entries: &[&str]) -> Egress {
    Egress::Allow(entries.iter().map(|&entry| entry.to_owned()).collect())
}

fn rules(rules: &[&str], default: EgressDefault) -> Egress {
    let parse = |text: &&str| {
        let (verdict, to) = text.split_once(' ').unwrap();
        let verdict = if verdict == "allow" { Verdict::Allow } else { Verdict::Deny };
        EgressRule { verdict, to: to.to_owned() }
    };
    Egress::Rules(EgressRules { rules: rules.iter().map(parse).collect(), default, headers: Vec::new() })
}

fn allows(egress: &Egress, address: [u8; 4]) -> bool {
    egress.policy().unwrap().allows(address.into())
}

#[test]
fn the_first_wrong_entry_of_a_list_is_named() {
    let wrong = |text: &str| EgressError::Target(EgressTargetError(text.to_owned()));
    assert_eq!(list(&["10.0.0.0/8", "*.example.com"]).check(), Ok(()));
    assert_eq!(list(&["10.0.0.0/8", "typo", "x"]).check(), Err(wrong("typo")));
    assert_eq!(rules(&["deny 10.0.0.0/8", "allow ::/0"], EgressDefault::Public).check(), Err(wrong("::/0")));
}

#[test]
fn the_first_rule_that_matches_decides_and_then_the_default() {
    let egress = rules(&["deny 1.1.1.1", "allow 1.1.1.0/24", "deny 1.0.0.0/8"], EgressDefault::Public);
    assert_eq!(egress.check(), Ok(()));
    assert!(!allows(&egress, [1, 1, 1, 1]));
    assert!(allows(&egress, [1, 1, 1, 2]));
    assert!(!allows(&egress, [1, 2, 1, 2]));
    assert!(allows(&egress, [8, 8, 8, 8]));
    assert!(!allows(&egress, [10, 0, 0, 1]));
    assert!(!allows(&Egress::closed(), [8, 8, 8, 8]));
}

#[test]
fn only_a_rule_that_names_a_private_network_itself_opens_it() {
    let private = [[10, 1, 2, 3], [169, 254, 169, 254], [192, 168, 0, 1], [127, 0, 0, 1], [168, 63, 129, 16]];
    for wide in ["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "8.0.0.0/5", "192.0.0.0/3", "168.63.129.0/24"] {
        for egress in [list(&[wide]), rules(&[&format!("allow {wide}")], EgressDefault::Public)] {
            assert!(private.iter().all(|address| !allows(&egress, *address)), "{wide}");
        }
    }
    assert!(allows(&list(&["0.0.0.0/0"]), [8, 8, 8, 8]));
    let named = rules(&["allow 0.0.0.0/0", "allow 10.1.0.0/16"], EgressDefault::Deny);
    assert_eq!(named.check(), Ok(()));
    assert!(allows(&named, [10, 1, 2, 3]) && !allows(&named, [10, 2, 2, 3]));
    assert!(allows(&list(&["169.254.169.254"]), [169, 254, 169, 254]));
}

#[test]
fn a_rule_that_can_never_match_is_named_with_the_one_that_covers_it() {
    let never = |given: &[&str]| match rules(given, EgressDefault::Deny).check() {
        Err(EgressError::NeverMatches { rule, by }) => Some((rule, by)),
        other => other.map(|()| None).unwrap(),
    };
    for (given, rule, by) in [
        (&["allow 1.1.1.1", "deny 1.1.1.1/32"][..], "deny 1.1.1.1/32", Some("allow 1.1.1.1")),
        (&["deny 1.1.0.0/16", "allow 1.1.1.0/24"], "allow 1.1.1.0/24", Some("deny 1.1.0.0/16")),
        (&["deny 0.0.0.0/0", "allow example.com"], "allow example.com", Some("deny 0.0.0.0/0")),
        (&["allow *.a.test", "deny www.a.test"], "deny www.a.test", Some("allow *.a.test")),
        (&["deny 1.0.0.0/9", "deny 1.128.0.0/9", "allow 1.1.1.1"], "allow 1.1.1.1", Some("deny 1.0.0.0/9")),
        (&["deny 1.0.0.0/9", "deny 1.128.0.0/9", "allow 1.0.0.0/8"], "allow 1.0.0.0/8", None),
        (&["allow 0.0.0.0/0", "allow 0.0.0.0/0"], "allow 0.0.0.0/0", Some("allow 0.0.0.0/0")),
    ] {
        assert_eq!(never(given), Some((rule.to_owned(), by.map(str::to_owned))), "{given:?}");
    }
    for possible in [
        &["allow 1.1.1.1", "deny 1.1.1.0/24"][..],
        &["allow example.com", "deny 0.0.0.0/0"],
        &["allow 0.0.0.0/0", "allow 10.0.0.0/8", "deny 172.16.0.0/12"],
        &["deny www.a.test", "allow *.a.test", "allow a.test"],
        &["deny 0.0.0.0/1", "deny 128.0.0.0/1", "deny 0.0.0.0/0"],
    ] {
        assert_eq!(never(possible), None, "{possible:?}");
    }
    let many: Vec<_> = (0..=255).map(|last| format!("deny 1.1.1.{last}")).chain(["deny 2.2.2.2".to_owned()]).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(rules(&many, EgressDefault::Public).check(), Err(EgressError::TooMany(257)));
    assert_eq!(rules(&many[1..], EgressDefault::Public).check(), Ok(()));
}

#[test]
fn an_error_about_a_rule_names_it_and_the_next_step() {
    let twice = rules(&["allow 1.1.1.1", "deny 1.1.1.1"], EgressDefault::Deny);
    assert_eq!(
        twice.check().unwrap_err().to_string(),
        "the egress rule 'deny 1.1.1.1' can never match, because earlier rules ('allow 1.1.1.1') match all of its \
         destinations: remove it or move it up"
    );
}
