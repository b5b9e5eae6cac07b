//! Values compared with the schemas of the OpenAPI document: the bodies of all requests and
//! responses of these tests, and the examples. The comparison knows the keywords that the document
//! uses, and fails at any other, so that no part of a schema is ignored.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// The committed document; a test in the crate compares it with the one that is served.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
});

/// A request with the JSON bodies that were sent and received; null for none.
pub(crate) struct Exchange<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) sent: &'a Value,
    pub(crate) status: u16,
    pub(crate) media_type: &'a str,
    pub(crate) received: &'a Value,
}

impl Exchange<'_> {
    /// Fails if the document describes other bodies.
    pub(crate) fn check(&self) {
        let place = format!("{} {}: {}", self.method, self.path, self.status);
        let mut wrong = Vec::new();
        match self.operation() {
            None => {
                let problem = json!({ "$ref": "#/components/schemas/Problem" });
                check(&DOCUMENT, &problem, self.received, &place, &mut wrong);
            }
            Some(operation) => {
                let content = self.content(operation);
                let schema = content.and_then(|content| content.get(self.media_type)).map(|body| &body["schema"]);
                match schema {
                    Some(schema) if self.media_type.ends_with("json") => {
                        check(&DOCUMENT, schema, self.received, &place, &mut wrong);
                    }
                    Some(_) => {}
                    None if self.media_type.is_empty() && content.is_none() => {}
                    None => wrong.push(format!("{place}: a body of type '{}' is not described", self.media_type)),
                }
                let schema = operation["requestBody"]["content"]["application/json"].get("schema");
                if self.status < 300 && !self.sent.is_null() {
                    let schema = schema.unwrap_or_else(|| panic!("{place}: no body is described"));
                    check(&DOCUMENT, schema, self.sent, &format!("{place}: request"), &mut wrong);
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// The operation that the document describes for this request; a literal part of a path wins.
    fn operation(&self) -> Option<&'static Value> {
        let path = self.path.split('?').next().unwrap();
        let parts: Vec<_> = path.split('/').collect();
        let fits = |template: &str| {
            let known: Vec<_> = template.split('/').collect();
            known.len() == parts.len()
                && known.iter().zip(&parts).all(|(known, part)| known == part || known.starts_with('{'))
        };
        let paths = DOCUMENT["paths"].as_object().unwrap();
        let found = paths.iter().filter(|(template, _)| fits(template));
        let (_, item) = found.min_by_key(|(template, _)| template.matches('{').count())?;
        item.get(self.method.to_ascii_lowercase())
    }

    /// The media types that the document describes for the response.
    fn content(&self, operation: &'static Value) -> Option<&'static Value> {
        let responses = &operation["responses"];
        let status = self.status.to_string();
        let described = match responses.get(&status) {
            Some(described) => described,
            None if self.status < 400 => panic!("{} {}: {status} is not described", self.method, self.path),
            None => &responses["default"],
        };
        described.get("$ref").map_or(described, |reference| resolve(&DOCUMENT, reference)).get("content")
    }
}

#[test]
fn examples_and_defaults_fit_their_schemas() {
    let (mut open, mut wrong, mut count) = (vec![("document".to_owned(), &*DOCUMENT)], Vec::new(), 0);
    while let Some((place, value)) = open.pop() {
        match value {
            Value::Object(members) => {
                let examples = members.get("examples").and_then(Value::as_array).into_iter().flatten();
                // The default of a schema, not the default response of an operation.
                let default = members.get("default").filter(|default| default.get("$ref").is_none());
                for example in examples.chain(default) {
                    check(&DOCUMENT, value, example, &place, &mut wrong);
                    count += 1;
                }
                let rest = members.iter().filter(|(name, _)| !matches!(name.as_str(), "examples" | "default"));
                open.extend(rest.map(|(name, member)| (format!("{place}.{name}"), member)));
            }
            Value::Array(items) => {
                open.extend(items.iter().enumerate().map(|(at, item)| (format!("{place}[{at}]"), item)));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 16, "only {count} values were found");
}

/// The reasons why `value` does not fit `schema`, each with the place in the value.
fn check(document: &Value, schema: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    for (keyword, argument) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "description" | "examples" | "default" | "required" | "propertyNames" => {}
            "$ref" => check(document, resolve(document, argument), value, place, wrong),
            "type" => is_of_type(argument, value, place, wrong),
            "format" => has_format(argument.as_str().unwrap(), value, place, wrong),
            "enum" if !argument.as_array().unwrap().contains(value) => {
                wrong.push(format!("{place}: {value} is unknown"))
            }
            "minimum" if value.as_f64().is_some_and(|number| number < argument.as_f64().unwrap()) => {
                wrong.push(format!("{place}: {value} is below {argument}"));
            }
            "enum" | "minimum" => {}
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(document, argument, item, &format!("{place}[{index}]"), wrong);
                }
            }
            "properties" | "additionalProperties" => {}
            "allOf" => argument.as_array().unwrap().iter().for_each(|part| check(document, part, value, place, wrong)),
            "oneOf" => fits_one(document, argument, value, place, wrong),
            other => panic!("the schema at {place} has the keyword '{other}', which this check does not know"),
        }
    }
    if let Value::Object(members) = value {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) {
                wrong.push(format!("{place}: {name} is missing"));
            }
        }
        for (name, member) in members {
            let place = format!("{place}.{name}");
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(property), _) => check(document, property, member, &place, wrong),
                (None, Some(Value::Bool(false))) => wrong.push(format!("{place} is not a property")),
                (None, Some(others)) if others.is_object() => check(document, others, member, &place, wrong),
                (None, _) => {}
            }
        }
    }
}

fn resolve<'a>(document: &'a Value, reference: &Value) -> &'a Value {
    document.pointer(reference.as_str().unwrap().strip_prefix('#').unwrap()).unwrap()
}

fn fits_one(document: &Value, choices: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    let fits = |choice: &&Value| {
        let mut wrong = Vec::new();
        check(document, choice, value, place, &mut wrong);
        wrong.is_empty()
    };
    let count = choices.as_array().unwrap().iter().filter(fits).count();
    if count != 1 {
        wrong.push(format!("{place}: {value} fits {count} of the choices"));
    }
}

fn is_of_type(kinds: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    let is = |kind: &str| match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("{place}: unknown type {other}"),
    };
    let fits = match kinds {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is),
        kind => is(kind.as_str().unwrap()),
    };
    if !fits {
        wrong.push(format!("{place}: {value} is not of type {kinds}"));
    }
}

fn has_format(format: &str, value: &Value, place: &str, wrong: &mut Vec<String>) {
    let fits = match (format, value) {
        ("date-time", Value::String(text)) => text.parse::<jiff::Timestamp>().is_ok(),
        ("int32", Value::Number(number)) => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        // Sizes are unsigned, and OpenAPI has no format for that.
        ("int64", Value::Number(number)) => number.is_i64() || number.is_u64(),
        ("date-time" | "int32" | "int64" | "double" | "binary", _) => true,
        (other, _) => panic!("{place}: unknown format {other}"),
    };
    if !fits {
        wrong.push(format!("{place}: {value} is not a {format}"));
    }
}

#[test]
fn each_keyword_refuses_what_it_should() {
    let document = json!({ "components": { "A": { "type": "string", "enum": ["a"] } } });
    let fits = |schema: Value, value: Value| {
        let mut wrong = Vec::new();
        check(&document, &schema, &value, "value", &mut wrong);
        wrong.is_empty()
    };
    for (schema, good, bad) in [
        (json!({ "$ref": "#/components/A" }), json!("a"), json!("b")),
        (json!({ "type": ["integer", "null"], "minimum": 0 }), json!(0), json!(-1)),
        (json!({ "type": "string", "format": "date-time" }), json!("2026-11-22T09:30:00Z"), json!("today")),
        (json!({ "type": "integer", "format": "int32" }), json!(1), json!(1_u64 << 40)),
        (json!({ "items": { "type": "boolean" } }), json!([true]), json!([true, 1])),
        (json!({ "allOf": [{ "$ref": "#/components/A" }] }), json!("a"), json!("b")),
        (json!({ "oneOf": [{ "type": "number" }, { "type": "null" }] }), json!(null), json!("b")),
        (json!({ "oneOf": [{ "type": "number" }, { "type": "integer" }] }), json!(0.5), json!(1)),
        (json!({ "required": ["b"] }), json!({ "b": 1 }), json!({ "c": 1 })),
        (json!({ "properties": { "b": { "type": "null" } } }), json!({ "b": null, "c": 1 }), json!({ "b": 1 })),
        (json!({ "properties": { "b": {} }, "additionalProperties": false }), json!({ "b": 1 }), json!({ "c": 1 })),
        (json!({ "additionalProperties": { "type": "string" } }), json!({ "b": "" }), json!({ "b": 1 })),
    ] {
        assert!(fits(schema.clone(), good.clone()), "{schema} {good}");
        assert!(!fits(schema.clone(), bad.clone()), "{schema} {bad}");
    }
}
