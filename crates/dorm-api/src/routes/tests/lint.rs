//! Rules for the OpenAPI document that its format does not require, and that clients and generators
//! rely on. Rules for ids, tags, summaries and descriptions are in the parent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::operations;
use crate::access::Need;
use crate::routes::{NEEDS, document};

fn described() -> Value {
    serde_json::to_value(document()).unwrap()
}

/// Fails with all violations of a rule.
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Every object of a document with its path in it, without examples and default values.
fn objects<'a>(value: &'a Value, path: &str, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(members) => {
            found.push((path.to_owned(), value));
            for (name, member) in members {
                if !matches!(name.as_str(), "examples" | "example" | "default") || member.get("$ref").is_some() {
                    objects(member, &format!("{path}/{name}"), found);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
}

fn is_snake_case(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
}

#[test]
fn every_operation_may_fail_with_a_problem() {
    let document = described();
    let problem = json!({ "$ref": "#/components/schemas/Problem" });
    assert_eq!(document["components"]["responses"]["Error"]["content"]["application/problem+json"]["schema"], problem);
    let mut wrong = Vec::new();
    for (route, operation) in operations(&document) {
        let responses = operation["responses"].as_object().unwrap();
        if responses.get("default") != Some(&json!({ "$ref": "#/components/responses/Error" })) {
            wrong.push(format!("{route}: the default response is not Error"));
        }
        for (status, response) in responses.iter().filter(|(status, _)| status.starts_with(['4', '5'])) {
            if response["content"]["application/problem+json"]["schema"] != problem {
                wrong.push(format!("{route}: {status} is not a Problem"));
            }
        }
    }
    none(&wrong);
}

#[test]
fn every_operation_may_succeed_with_a_described_body() {
    let document = described();
    let mut wrong = Vec::new();
    for (route, operation) in operations(&document) {
        let responses = operation["responses"].as_object().unwrap();
        let mut good = responses.iter().filter(|(status, _)| status.starts_with(['1', '2'])).peekable();
        if good.peek().is_none() {
            wrong.push(format!("{route} never succeeds"));
        }
        for (status, response) in good {
            let content = response["content"].as_object();
            let has_schema = content.is_some_and(|content| content.values().all(|body| body["schema"].is_object()));
            if (status == "204") == has_schema {
                wrong.push(format!("{route}: only 204 has no body, and each body a schema, but not {status}"));
            }
        }
    }
    none(&wrong);
}

#[test]
fn every_part_of_a_path_is_a_parameter_and_names_are_in_one_case() {
    let document = described();
    let mut wrong = Vec::new();
    for (route, operation) in operations(&document) {
        let path = route.split_once(' ').unwrap().1;
        let mut in_path = BTreeSet::new();
        for part in path.split('/').skip(1) {
            match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                Some(name) if is_snake_case(name) && in_path.insert(name.to_owned()) => {}
                None if is_snake_case(part) || part == "openapi.json" => {}
                _ => wrong.push(format!("{route}: '{part}'")),
            }
        }
        let mut found = BTreeSet::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
            if !found.insert((place, name)) {
                wrong.push(format!("{route}: {name} is there twice"));
            }
            if place == "path" && (!in_path.remove(name) || parameter["required"] != true) {
                wrong.push(format!("{route}: {name} is not a required part of the path"));
            }
            if place == "query" && !is_snake_case(name) {
                wrong.push(format!("{route}: {name} is not in snake_case"));
            }
            if !parameter["schema"].is_object() {
                wrong.push(format!("{route}: {name} has no schema"));
            }
        }
        wrong.extend(in_path.into_iter().map(|name| format!("{route}: {name} is not described")));
    }
    none(&wrong);
}

#[test]
fn exactly_the_routes_without_a_need_are_open() {
    let document = described();
    let open: BTreeSet<_> = operations(&document)
        .filter(|(_, operation)| operation.get("security").is_some())
        .collect::<Vec<_>>()
        .into_iter()
        .map(|(route, operation)| {
            assert_eq!(operation["security"], json!([{}]), "{route}");
            route
        })
        .collect();
    let expected: BTreeSet<_> = NEEDS
        .iter()
        .filter(|(_, _, need)| *need == Need::Nothing)
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    assert_eq!(open, expected);
}

#[test]
fn only_requests_that_change_something_have_a_body() {
    let document = described();
    for (route, operation) in operations(&document) {
        let has_body = operation.get("requestBody").is_some();
        assert!(!has_body || ["post", "put", "patch"].iter().any(|method| route.starts_with(method)), "{route}");
        for (kind, body) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            assert!(body["schema"].is_object(), "{route}: {kind} has no schema");
        }
    }
}

#[test]
fn every_list_with_a_cursor_has_a_limit_and_a_next() {
    let document = described();
    let mut count = 0;
    for (route, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array();
        let has = |name: &str| parameters.into_iter().flatten().any(|parameter| parameter["name"] == name);
        let name = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].as_str();
        let name = name.and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
        let has_next = document["components"]["schemas"][name]["properties"].get("next");
        let has_next = has_next.is_some_and(|next| next["type"] != "array");
        // A search has a limit and no cursor: its response tells what has ended it.
        let is_search = route.ends_with("/files/find") || route.ends_with("/files/grep");
        assert_eq!((has("after"), has("after")), (has_next, has("limit") && !is_search), "{route}");
        count += usize::from(has_next);
    }
    assert!(count >= 8, "only {count} lists have cursors");
}

#[test]
fn every_schema_is_used() {
    let document = described();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let references = |value: &Value| {
        let mut found = Vec::new();
        objects(value, "", &mut found);
        let names = found.into_iter().filter_map(|(_, object)| object.get("$ref")?.as_str()?.rsplit('/').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut open = references(&document["paths"]);
    open.extend(references(&document["components"]["responses"]));
    let mut used = BTreeSet::new();
    while let Some(name) = open.pop() {
        if let Some(schema) = schemas.get(&name).filter(|_| used.insert(name.clone())) {
            open.extend(references(schema));
        }
    }
    assert_eq!(used, schemas.keys().cloned().collect());
}

#[test]
fn every_description_is_made_of_sentences() {
    let document = described();
    let mut found = Vec::new();
    objects(&document, "", &mut found);
    let mut wrong = Vec::new();
    for (path, text) in found.iter().filter_map(|(path, object)| Some((path, object.get("description")?.as_str()?))) {
        let begins =
            text.starts_with(|first: char| first.is_uppercase() || first.is_ascii_digit() || "`/*".contains(first));
        if !begins || !text.ends_with('.') {
            wrong.push(format!("{path}: {text}"));
        }
    }
    none(&wrong);
}

#[test]
fn names_of_properties_say_their_unit_and_type() {
    let document = described();
    let mut found = Vec::new();
    objects(&document["components"]["schemas"], "", &mut found);
    let mut wrong = Vec::new();
    for (path, object) in found {
        for (name, property) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            // A nullable reference to another schema has its type there.
            let kinds = property["type"].as_str().map(|kind| vec![kind]).unwrap_or_else(|| {
                property["type"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
            });
            let is = |kind: &str| kinds.contains(&kind);
            let fits = match name.rsplit_once('_').map_or("", |(_, unit)| unit) {
                "secs" => is("number"),
                "bytes" | "ms" | "millis" => is("integer") && property["minimum"] == 0,
                "at" => property["format"] == "date-time" || property.to_string().contains("#/components/schemas/Time"),
                _ => true,
            };
            if !fits || !is_snake_case(name) {
                wrong.push(format!("{path}.{name}: {property}"));
            }
        }
    }
    none(&wrong);
}

#[test]
fn every_schema_is_typed_and_requires_only_its_properties() {
    let document = described();
    let mut wrong = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let mut found = Vec::new();
        objects(schema, name, &mut found);
        for (path, object) in found {
            let is_schema = !path.ends_with("/properties");
            let is_typed = ["type", "$ref", "oneOf", "allOf"].iter().any(|keyword| object.get(*keyword).is_some());
            if is_schema && !is_typed {
                wrong.push(format!("{path} has no type"));
            }
            if object.get("type") == Some(&json!("array")) && object.get("items").is_none() {
                wrong.push(format!("{path} is an array of anything"));
            }
            for required in object.get("required").and_then(Value::as_array).into_iter().flatten() {
                if object["properties"].get(required.as_str().unwrap()).is_none() {
                    wrong.push(format!("{path} requires {required}, which is not a property"));
                }
            }
            let values = object.get("enum").and_then(Value::as_array);
            let distinct: BTreeMap<_, _> = values.into_iter().flatten().map(|value| (value.to_string(), ())).collect();
            if distinct.len() != values.map_or(0, Vec::len) {
                wrong.push(format!("{path} has a value twice"));
            }
        }
    }
    none(&wrong);
}

/// Whether a value of the schema `other` may fit the schema `one`, too.
fn may_fit(one: &Value, other: &Value) -> bool {
    if one["type"] != other["type"] {
        return false;
    }
    let properties = other["properties"].as_object();
    let mut required = one["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.all(|name| {
        // A property with other values, such as a tag, tells the two apart.
        let value = &one["properties"][name];
        properties.and_then(|known| known.get(name)).is_some_and(|known| known.get("enum") == value.get("enum"))
    })
}

#[test]
fn objects_that_stand_in_one_place_can_be_told_apart() {
    let document = described();
    let resolved = |choice: &Value| match choice.get("$ref").and_then(Value::as_str) {
        Some(reference) => document.pointer(reference.strip_prefix('#').unwrap()).unwrap().clone(),
        None => choice.clone(),
    };
    let mut found = Vec::new();
    objects(&document, "", &mut found);
    let mut wrong = Vec::new();
    for (path, object) in found {
        let choices = object.get("oneOf").and_then(Value::as_array).into_iter().flatten().map(resolved);
        let choices: Vec<_> = choices.filter(|choice| choice["type"] == "object").collect();
        for (at, one) in choices.iter().enumerate() {
            for (beside, other) in choices.iter().enumerate() {
                if at != beside && may_fit(one, other) {
                    wrong.push(format!("{path}: a value of choice {beside} may fit choice {at}"));
                }
            }
        }
    }
    none(&wrong);
}
