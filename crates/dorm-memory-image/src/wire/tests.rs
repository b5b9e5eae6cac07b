use super::*;
use crate::sample;

fn read(bytes: &[u8]) -> Result<Value<'_>> {
    Wire::new(bytes).value()
}

/// Checks that all of `bytes` is one value.
fn skip(bytes: &[u8]) -> Result<()> {
    let mut wire = Wire::new(bytes);
    wire.skip()?;
    assert!(wire.is_at_end(), "{} of {} bytes", wire.position(), bytes.len());
    Ok(())
}

#[test]
fn whole_numbers_of_any_size_are_read() {
    for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
        assert!(matches!(read(&sample::uint(number)), Ok(Value::Uint(found)) if found == number), "{number}");
    }
    for number in [0, 1, -1, 63, -64, 64, i64::MAX, i64::MIN] {
        assert!(matches!(read(&sample::int(number)), Ok(Value::Int(found)) if found == number), "{number}");
    }
}

#[test]
fn a_number_that_is_too_big_or_does_not_end_is_an_error() {
    assert!(read(&[2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).is_err());
    assert!(read(&[2, 0x80, 0x80]).is_err());
    assert!(read(&[2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0]).is_err());
    assert!(read(&[]).is_err());
}

#[test]
fn texts_are_bytes_and_have_no_more_than_there_are() {
    assert!(matches!(read(&sample::text(b"a\xff\n")), Ok(Value::Text(b"a\xff\n"))));
    assert!(read(&[7, 4, b'a', b'b', b'c']).is_err());
    assert!(read(&[[7].as_slice(), &sample::number(u64::MAX)].concat()).is_err());
}

#[test]
fn arrays_have_their_tag_once() {
    let bytes = sample::array(&[sample::uint(5), sample::uint(300), sample::uint(7)]);
    skip(&bytes).unwrap();
    let Ok(Value::Array(mut items)) = read(&bytes) else { panic!("no array") };
    assert_eq!(items.left(), 3);
    assert!(matches!(items.nth(1), Ok((Value::Uint(300), _))));
    assert!(items.nth(3).is_err());
    let mut found = Vec::new();
    while let Some(Value::Uint(number)) = items.next().unwrap() {
        found.push(number);
    }
    assert_eq!(found, [5, 300, 7]);
    assert!(matches!(read(&sample::array(&[])), Ok(Value::Array(items)) if items.left() == 0));
}

#[test]
fn maps_have_their_tags_once() {
    let pair = |key: &[u8], value| (sample::text(key), sample::reference(value, "dentry"));
    let bytes = sample::map(&[pair(b"one", 1), pair(b"two", 2)]);
    skip(&bytes).unwrap();
    let Ok(Value::Map(mut pairs)) = read(&bytes) else { panic!("no map") };
    for (name, number) in [(b"one", 1), (b"two", 2)] {
        let Some((Value::Text(key), Value::Ref(found))) = pairs.next().unwrap() else { panic!("no pair") };
        assert_eq!((key, found.root), (name.as_slice(), number));
        let (steps, count) = found.steps::<4>().unwrap();
        assert_eq!(&steps[..count], [Step::Field(b"dentry")]);
    }
    assert!(pairs.next().unwrap().is_none());
}

#[test]
fn the_steps_of_a_pointer_come_in_the_order_in_which_they_are_taken() {
    // To object 9: first the field "ab", then its element 3.
    let bytes = [&[6, 9, 2, 6, 3][..], b"ab", &[0, 1]].concat();
    skip(&bytes).unwrap();
    let Ok(Value::Ref(found)) = read(&bytes) else { panic!("no pointer") };
    let (steps, count) = found.steps::<2>().unwrap();
    assert_eq!(&steps[..count], [Step::Field(b"ab"), Step::Element(3)]);
    assert!(found.steps::<1>().is_err());
}

#[test]
fn more_than_there_can_be_is_refused_at_once() {
    let endless = sample::number(u64::MAX >> 1);
    for (what, head, tail) in [
        ("numbers", &[9][..], &[2, 1][..]),
        ("pairs", &[10][..], &[2, 1, 2, 1][..]),
        ("fields", &[11, 1, 13][..], &[2, 1][..]),
        ("steps", &[6, 1][..], &[2][..]),
    ] {
        assert!(skip(&[head, &endless, tail].concat()).is_err(), "{what}");
    }
}

#[test]
fn values_that_take_no_room_are_passed_over_and_not_counted_out() {
    let endless = [&[9][..], &sample::number(u64::MAX), &[5]].concat();
    skip(&endless).unwrap();
    let Ok(Value::Array(mut items)) = read(&endless) else { panic!("no array") };
    assert!(items.next().is_err());
}

#[test]
fn values_do_not_nest_without_end() {
    let structs = [11, 1].repeat(100_000);
    assert_eq!(skip(&structs).unwrap_err().what, "values are nested too deeply");
    let types = [&[14][..], &[1].repeat(100_000)].concat();
    assert_eq!(skip(&types).unwrap_err().what, "types are nested too deeply");
}

#[test]
fn every_kind_of_value_is_passed_over() {
    for bytes in [
        &[0, 1][..],
        &[3, 5],
        &[4, 5],
        &[5],
        &[8, 2, 4, 7, 0],
        &[12],
        &[14, 4, 0, 1, 2, 8, 3, 5, 6, 3, 0],
        &[15, 1, 2],
        &[16, 1, 2],
    ] {
        skip(bytes).unwrap();
    }
    assert!(skip(&[18]).is_err());
    assert!(skip(&[17]).is_err());
}
