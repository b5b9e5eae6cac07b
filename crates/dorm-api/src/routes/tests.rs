use std::collections::BTreeSet;
use std::path::Path;

use super::*;

#[test]
fn the_document_describes_every_route_and_no_other() {
    let document = serde_json::to_value(document()).unwrap();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())))
        .collect();
    let routed: BTreeSet<(String, String)> =
        ROUTES.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(routed.len(), ROUTES.len(), "a route is there twice");
    assert_eq!(described, routed);
}

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let mut served = serde_json::to_string_pretty(&document()).unwrap();
    served.push('\n');
    if std::env::var_os("DORM_REWRITE").is_some() {
        std::fs::write(&path, &served).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == served, "docs/reference/openapi.json is stale: run this test with DORM_REWRITE=1");
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    let document = serde_json::to_value(document()).unwrap();
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(object) => {
                if let Some(reference) = object.get("$ref").and_then(|reference| reference.as_str()) {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                }
                open.extend(object.values());
            }
            serde_json::Value::Array(values) => open.extend(values),
            _ => {}
        }
    }
}
