mod lint;

use std::collections::BTreeSet;
use std::path::Path;

use dorm_lifecycle::{EventKind, Resources};
use dorm_service::CreateFrom;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::convert;

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

/// Every operation of the document, with its method and path for failures.
fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().iter().map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

#[test]
fn every_operation_has_an_id_of_its_own_that_generators_can_use_as_a_name() {
    let document = serde_json::to_value(document()).unwrap();
    let mut seen = BTreeSet::new();
    for (route, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{route} has no operationId"));
        let is_camel_case = id.starts_with(|first: char| first.is_ascii_lowercase())
            && id.chars().all(|letter| letter.is_ascii_alphabetic());
        assert!(is_camel_case, "{route}: '{id}' does not match ^[a-z][A-Za-z]*$");
        assert!(seen.insert(id), "{route}: '{id}' is used twice");
    }
    assert_eq!(seen.len(), ROUTES.len());
}

#[test]
fn every_operation_has_a_tag_that_is_described_and_every_tag_is_used() {
    let document = serde_json::to_value(document()).unwrap();
    let tags = document["tags"].as_array().unwrap();
    let described: BTreeSet<_> =
        tags.iter().filter_map(|tag| tag["description"].as_str().and(tag["name"].as_str())).collect();
    let used = operations(&document).flat_map(|(_, operation)| operation["tags"].as_array().unwrap());
    let used: BTreeSet<_> = used.filter_map(Value::as_str).collect();
    assert_eq!(described, used);
}

#[test]
fn the_document_names_a_server_and_the_ways_to_authenticate() {
    let document = serde_json::to_value(document()).unwrap();
    assert_eq!(document["servers"][0]["url"], "http://127.0.0.1:7070");
    let schemes = document["components"]["securitySchemes"].as_object().unwrap();
    for requirement in document["security"].as_array().unwrap() {
        assert!(requirement.as_object().unwrap().keys().all(|scheme| schemes.contains_key(scheme)), "{requirement}");
    }
}

/// Whether a property has a description. For a value that may be null, it is next to the reference
/// to its type.
fn is_described(value: &Value) -> bool {
    let described = |value: &Value| value["description"].as_str().is_some_and(|text| !text.is_empty());
    described(value) || value["oneOf"].as_array().is_some_and(|choices| choices.iter().any(described))
}

#[test]
fn every_operation_and_parameter_is_described() {
    let document = serde_json::to_value(document()).unwrap();
    for (route, operation) in operations(&document) {
        let summary = operation["summary"].as_str().unwrap_or_else(|| panic!("{route} has no summary"));
        assert!(
            summary.len() <= 70 && !summary.contains('\n'),
            "{route}: the summary is not one short line: {summary}"
        );
        assert!(!summary.ends_with('.'), "{route}: the summary is a title, not a sentence: {summary}");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(is_described(parameter), "{route}: no description of {}", parameter["name"]);
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(is_described(response) || response.get("$ref").is_some(), "{route}: no description of {status}");
        }
    }
}

#[test]
fn a_body_that_is_not_json_is_a_string_of_bytes() {
    let document = serde_json::to_value(document()).unwrap();
    for (route, operation) in operations(&document) {
        let responses = operation["responses"].as_object().unwrap().values();
        for body in responses.chain(operation.get("requestBody")) {
            for kind in ["application/octet-stream", "application/x-tar"] {
                if let Some(content) = body["content"].get(kind) {
                    assert_eq!(content["schema"]["$ref"], "#/components/schemas/Binary", "{route}");
                }
            }
        }
    }
}

#[test]
fn every_schema_and_property_is_described() {
    let document = serde_json::to_value(document()).unwrap();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(is_described(schema), "no description of {name}");
        for (property, value) in schema["properties"].as_object().into_iter().flatten() {
            assert!(is_described(value), "no description of {name}.{property}");
        }
    }
}

/// Parses an example as its type and serialises it again: no field may be missing or unknown.
fn reads_as<T: DeserializeOwned + Serialize>(example: &Value) -> Value {
    let read: T = serde_json::from_value(example.clone()).unwrap_or_else(|error| panic!("{example}: {error}"));
    serde_json::to_value(read).unwrap()
}

#[test]
fn every_example_is_a_complete_value_of_its_type() {
    let document = serde_json::to_value(document()).unwrap();
    for (name, example) in examples::all() {
        let written = match name {
            "EnsureRequest" => reads_as::<wire::EnsureRequest>(&example),
            "CreateSandbox" => reads_as::<wire::CreateSandbox>(&example),
            "CheckpointRequest" => reads_as::<wire::CheckpointRequest>(&example),
            "ForkRequest" => reads_as::<wire::ForkRequest>(&example),
            "SetEgress" => reads_as::<wire::SetEgress>(&example),
            "ExecRequest" => reads_as::<wire::ExecRequest>(&example),
            "StartProcess" => reads_as::<wire::StartProcess>(&example),
            "CreateVolume" => reads_as::<wire::CreateVolume>(&example),
            "PullImage" => reads_as::<wire::PullImage>(&example),
            "UpdateSandbox" => reads_as::<wire::UpdateSandbox>(&example),
            "CreateProject" => reads_as::<wire::CreateProject>(&example),
            "CreateKey" => reads_as::<wire::CreateKey>(&example),
            "CreateWebhook" => reads_as::<wire::CreateWebhook>(&example),
            "Sandbox" => reads_as::<wire::Sandbox>(&example),
            "Snapshot" => reads_as::<wire::Snapshot>(&example),
            "ExecResult" => reads_as::<wire::ExecResult>(&example),
            "Event" => reads_as::<wire::Event>(&example),
            "Operation" => reads_as::<wire::Operation>(&example),
            "Volume" => reads_as::<wire::Volume>(&example),
            "Problem" => reads_as::<wire::Problem>(&example),
            other => panic!("the test does not know the type of the example '{other}'"),
        };
        assert_eq!(written, example, "{name}");
        assert_eq!(document["components"]["schemas"][name]["examples"][0], example, "{name} is not in the document");
    }
}

#[test]
fn the_examples_of_requests_are_valid() {
    let example = |wanted: &str| examples::all().into_iter().find(|(name, _)| *name == wanted).unwrap().1;
    let create: wire::CreateSandbox = serde_json::from_value(example("CreateSandbox")).unwrap();
    let from = CreateFrom::Image(create.image.clone().unwrap());
    let egress = convert::create(create, from, Resources::default()).unwrap().egress;
    egress.unwrap().check().unwrap();
    let egress: wire::SetEgress = serde_json::from_value(example("SetEgress")).unwrap();
    let egress: dorm_lifecycle::Egress = convert::Convert::convert(egress.egress);
    egress.check().unwrap();
    let exec: wire::ExecRequest = serde_json::from_value(example("ExecRequest")).unwrap();
    let wire::ExecRequest { argv, shell, env, cwd, user, .. } = exec;
    convert::command(convert::Command { argv, shell, env, cwd, user }).unwrap();
    convert::process_spec(serde_json::from_value(example("StartProcess")).unwrap()).unwrap();
    let webhook: wire::CreateWebhook = serde_json::from_value(example("CreateWebhook")).unwrap();
    assert!(webhook.kinds.iter().all(|kind| EventKind::ALL.iter().any(|known| known.as_str() == kind)));
    let event: wire::Event = serde_json::from_value(example("Event")).unwrap();
    assert!(EventKind::ALL.iter().any(|known| known.as_str() == event.kind));
}

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let mut served = serde_json::to_string_pretty(&document()).unwrap();
    served.push('\n');
    if std::env::var_os("DORM_UPDATE").is_some() {
        std::fs::write(&path, &served).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == served, "docs/reference/openapi.json is stale: run this test with DORM_UPDATE=1");
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    let document = serde_json::to_value(document()).unwrap();
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(object) => {
                if let Some(reference) = object.get("$ref").and_then(|reference| reference.as_str()) {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                }
                open.extend(object.values());
            }
            Value::Array(values) => open.extend(values),
            _ => {}
        }
    }
}

#[test]
fn every_post_says_what_a_retry_does() {
    use crate::conditions::{CONDITIONAL, RETRIES};

    let routed: BTreeSet<_> = ROUTES.iter().filter(|(method, _)| *method == "post").map(|(_, path)| *path).collect();
    let told: BTreeSet<_> = RETRIES.iter().map(|(path, _)| *path).collect();
    assert_eq!((told.len(), told), (RETRIES.len(), routed));
    for conditional in CONDITIONAL {
        assert!(ROUTES.contains(conditional), "{conditional:?} is no route");
    }
}
