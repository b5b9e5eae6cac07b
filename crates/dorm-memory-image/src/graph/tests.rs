use super::*;
use crate::budget::FilesLimits;
use crate::sample::{self, Saved};

fn plenty() -> Budget {
    Budget::new(FilesLimits::default(), 0)
}

fn graph(bytes: &[u8]) -> Result<Graph<'_>, MemoryImageError> {
    match next("sample", &mut Wire::new(bytes), &plenty())? {
        Part::Graph(graph) => Ok(graph),
        Part::Bytes(length) => panic!("{length} bytes"),
    }
}

/// `Top { count, name, inner }`, whose `inner` points into `Outer { tail, inner: Inner { value }
/// }`.
fn sample() -> Saved {
    let mut saved = Saved::default();
    let top = saved.room();
    let inner = saved.make("pkg/Inner", &[("value", sample::int(-7))]);
    let outer = saved.make("pkg/Outer", &[("tail", sample::uint(1)), ("inner", inner)]);
    let outer = saved.add(outer);
    let count = saved.make("pkg/atomicbitops.Uint32", &[("value", sample::uint(300))]);
    let fields = [("count", count), ("name", sample::text(b"x")), ("inner", sample::reference(outer, "inner"))];
    let value = saved.make("pkg/Top", &fields);
    saved.put(top, value);
    saved
}

#[test]
fn fields_are_found_by_name_in_any_order() {
    let bytes = sample().bytes();
    let graph = graph(&bytes).unwrap();
    let root = graph.root().unwrap();
    assert_eq!(graph.kind_of(root.object), Some(b"pkg/Top".as_slice()));
    let [inner, count, name] = graph.fields(root.value, "pkg/Top", ["inner", "count", "name"]).unwrap();
    assert_eq!(graph.unsigned(count).unwrap(), 300);
    assert_eq!(graph.text(name).unwrap(), b"x");
    let inner = graph.must(inner).unwrap();
    assert_eq!(graph.kind_of(inner.object), Some(b"pkg/Outer".as_slice()));
    let [value] = graph.fields(inner.value, "pkg/Inner", ["value"]).unwrap();
    assert_eq!(graph.signed(value).unwrap(), -7);
    assert!(graph.unsigned(value).is_err());
    assert_eq!(graph.all("pkg/Outer").count(), 1);
    assert_eq!(graph.all("pkg/Inner").count(), 0);
}

#[test]
fn what_is_missing_is_named_with_the_build() {
    let bytes = sample().bytes();
    let graph = graph(&bytes).unwrap();
    let root = graph.root().unwrap().value;
    for (of, field, expected) in
        [("pkg/Top", "size", "pkg/Top has no field size"), ("pkg/Other", "count", "expected pkg/Other, found pkg/Top")]
    {
        let error = graph.fields(root, of, [field]).err().unwrap().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(error.contains("this runsc build writes memory images in another format"), "{error}");
    }
    let [name] = graph.fields(root, "pkg/Top", ["name"]).unwrap();
    let error = graph.unsigned(name).unwrap_err().to_string();
    assert!(error.starts_with("the field name of pkg/Top is not a number"), "{error}");
}

#[test]
fn a_pointer_to_what_is_not_there_is_an_error() {
    for (root, field) in [(9, ""), (2, "nothing"), (2, "tail")] {
        let mut saved = sample();
        let pointer = saved.make("pkg/Pointer", &[("to", sample::reference(root, field))]);
        saved.put(1, pointer);
        let bytes = saved.bytes();
        let graph = graph(&bytes).unwrap();
        let [to] = graph.fields(graph.root().unwrap().value, "pkg/Pointer", ["to"]).unwrap();
        // A pointer can refer to a number, which is not a struct.
        let followed = graph.must(to).and_then(|place| graph.fields(place.value, "pkg/Inner", ["value"]));
        assert!(followed.is_err(), "{root}.{field}");
    }
}

#[test]
fn objects_that_are_announced_and_not_there_are_an_error() {
    let whole = sample().bytes();
    for length in 0..whole.len() {
        assert!(graph(&whole[..length]).is_err(), "{length}");
    }
    assert!(graph(&sample::number(1 << 63)).is_err());
    assert!(graph(&[sample::number(u64::MAX), vec![2, 1, 5]].concat()).is_err());
}

#[test]
fn objects_out_of_order_are_an_error() {
    let object = |number| [sample::uint(number), sample::nil()].concat();
    let head = sample::number(1 << 63 | 2);
    assert!(graph(&[head.clone(), object(1), object(5)].concat()).is_ok());
    for (first, second) in [(1, 1), (2, 1), (0, 1)] {
        assert!(graph(&[head.clone(), object(first), object(second)].concat()).is_err());
    }
}

#[test]
fn bytes_between_objects_are_reported_by_their_length() {
    assert!(matches!(next("sample", &mut Wire::new(&sample::number(4096)), &plenty()), Ok(Part::Bytes(4096))));
}
