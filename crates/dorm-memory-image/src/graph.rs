//! One saved object with everything reachable from it: types by name, objects by number, fields by
//! name.
//!
//! The stream itself names its types and fields, so nothing here depends on positions. A missing
//! name is an error that states the name. Finding a field means skipping others, so the total
//! search is limited: a forged image cannot make a long object be searched over and over.

use std::cell::Cell;

use crate::budget::Budget;
use crate::error::MemoryImageError;
use crate::wire::{Fault, Items, Pairs, Ref, Step, Struct, Value, Wire};

/// The bit of a header that says that objects follow instead of bytes.
const OBJECTS: u64 = 1 << 63;
/// The maximum number of steps of a pointer into an object.
const STEPS_MAX: usize = 16;
/// How often all bytes may be skipped in search of fields. Real images need less than a tenth.
const SEARCH_FACTOR: u64 = 100;
/// The memory of an object: here, and in the bookkeeping of a walk.
const OBJECT_BYTES: u64 = (size_of::<Object>() + size_of::<usize>() + 1) as u64;
/// The memory of a type, and the maximum memory of each of its fields.
const TYPE_BYTES: u64 = size_of::<Type<'_>>() as u64;
const TOO_MUCH: &str = "parsing it takes too much memory";
/// The types of atomic numbers, which are structs of one field.
const ATOMIC: &str = "pkg/atomicbitops.";

/// The next part of a stream.
pub(crate) enum Part<'a> {
    /// An object and everything reachable from it.
    Graph(Graph<'a>),
    /// A number of bytes, which are in another file.
    Bytes(u64),
}

/// An object and everything reachable from it.
pub(crate) struct Graph<'a> {
    file: &'static str,
    start: Wire<'a>,
    types: Vec<Type<'a>>,
    /// Sorted by number.
    objects: Vec<Object>,
    /// The number of bytes that may still be skipped.
    search: Cell<u64>,
}

struct Type<'a> {
    name: &'a [u8],
    fields: Vec<&'a [u8]>,
}

struct Object {
    number: u64,
    position: usize,
    /// The number of its type if it is a struct, otherwise 0.
    kind: u32,
}

/// The target of a pointer.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The index of the object that is the target, or contains it; less than [`Graph::len`].
    pub(crate) object: usize,
    pub(crate) value: Value<'a>,
}

/// The value of a field, with its names for errors.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    at: Wire<'a>,
    of: &'static str,
    name: &'static str,
}

/// Reads the next part of a stream.
pub(crate) fn next<'a>(file: &'static str, wire: &mut Wire<'a>, budget: &Budget) -> Result<Part<'a>, MemoryImageError> {
    let damaged = |fault: Fault| MemoryImageError::Damaged { file, what: fault.what, at: fault.at };
    let header = wire.uint().map_err(damaged)?;
    if header & OBJECTS == 0 {
        return Ok(Part::Bytes(header));
    }
    let mut graph = Graph { file, start: *wire, types: Vec::new(), objects: Vec::new(), search: Cell::new(0) };
    let indexed = graph.index(header & !OBJECTS, wire, budget);
    indexed.map_err(|fault| budget.memory_error().unwrap_or_else(|| damaged(fault)))?;
    Ok(Part::Graph(graph))
}

impl<'a> Graph<'a> {
    /// Records the position of each object.
    fn index(&mut self, count: u64, wire: &mut Wire<'a>, budget: &Budget) -> Result<(), Fault> {
        // An object takes at least two bytes of number and one of value.
        if count == 0 || count > wire.left() / 3 {
            return wire.fault("it ends before the announced number of objects");
        }
        if !budget.has_memory(count.saturating_mul(OBJECT_BYTES)) {
            return wire.fault(TOO_MUCH);
        }
        // Reserved at once, since a growing vector takes twice what it needs.
        self.objects.reserve_exact(usize::try_from(count).unwrap_or(0));
        while (self.objects.len() as u64) < count {
            if wire.is_type()? {
                let name = wire.text()?;
                let fields = wire.count()?;
                if !budget.has_memory(fields.saturating_add(1).saturating_mul(TYPE_BYTES)) {
                    return wire.fault(TOO_MUCH);
                }
                let fields = (0..fields).map(|_| wire.text()).collect::<Result<_, _>>()?;
                self.types.push(Type { name, fields });
                continue;
            }
            let Value::Uint(number) = wire.value()? else { return wire.fault("an object has no ID") };
            wire.skip()?;
            if number == 0 || self.objects.last().is_some_and(|last| last.number >= number) {
                return wire.fault("the object IDs are not in ascending order");
            }
            let position = wire.position();
            let kind = match wire.value()? {
                Value::Struct(found) => u32::try_from(found.kind).unwrap_or(u32::MAX),
                _ => 0,
            };
            wire.skip()?;
            self.objects.push(Object { number, position, kind });
        }
        let bytes = wire.position().saturating_sub(self.start.position()) as u64;
        self.search.set(bytes.saturating_mul(SEARCH_FACTOR));
        Ok(())
    }

    fn damaged(&self, fault: Fault) -> MemoryImageError {
        MemoryImageError::Damaged { file: self.file, what: fault.what, at: fault.at }
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    fn kind(&self, number: u64) -> Option<&Type<'a>> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.types.get(index)
    }

    /// Returns the name of the type of object `index`, if it is a struct.
    pub(crate) fn kind_of(&self, index: usize) -> Option<&'a [u8]> {
        let object = self.objects.get(index)?;
        self.kind(object.kind.into()).map(|kind| kind.name)
    }

    /// Returns the object that was saved.
    pub(crate) fn root(&self) -> Result<Place<'a>, MemoryImageError> {
        self.object(0)
    }

    /// Returns object `index`, if it exists.
    pub(crate) fn place(&self, index: usize) -> Result<Option<Place<'a>>, MemoryImageError> {
        if index < self.objects.len() { self.object(index).map(Some) } else { Ok(None) }
    }

    fn object(&self, index: usize) -> Result<Place<'a>, MemoryImageError> {
        let Some(object) = self.objects.get(index) else {
            return Err(MemoryImageError::unsound("an object is missing"));
        };
        let value = self.start.at(object.position).value().map_err(|fault| self.damaged(fault))?;
        Ok(Place { object: index, value })
    }

    /// Returns all objects of the type `name`.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = Result<Place<'a>, MemoryImageError>> {
        let kinds: Vec<bool> = self.types.iter().map(|kind| kind.name == name.as_bytes()).collect();
        let is_one = move |object: &Object| {
            let index = (object.kind as usize).checked_sub(1);
            index.and_then(|index| kinds.get(index)).copied().unwrap_or(false)
        };
        (0..self.objects.len())
            .filter(move |&index| self.objects.get(index).is_some_and(&is_one))
            .map(|i| self.object(i))
    }

    /// Returns the target of `reference`, or `None` for a null pointer.
    pub(crate) fn follow(&self, reference: &Ref<'a>) -> Result<Option<Place<'a>>, MemoryImageError> {
        if reference.root == 0 {
            return Ok(None);
        }
        let found = self.objects.binary_search_by_key(&reference.root, |object| object.number);
        let Ok(index) = found else {
            return Err(MemoryImageError::unsound(format!(
                "a pointer refers to object {}, which is missing",
                reference.root
            )));
        };
        let mut place = self.object(index)?;
        let (steps, count) = reference.steps::<STEPS_MAX>().map_err(|fault| self.damaged(fault))?;
        for step in steps.iter().take(count) {
            place.value = self.step(place.value, step)?;
        }
        Ok(Some(place))
    }

    fn step(&self, from: Value<'a>, step: &Step<'a>) -> Result<Value<'a>, MemoryImageError> {
        match (from, step) {
            (Value::Struct(inside), Step::Field(name)) => {
                let at = self.find_fields(&inside, &[name])?;
                let [Some(at)] = at else {
                    return Err(MemoryImageError::different(format!(
                        "a pointer refers to the field {} of {}, which does not exist",
                        name.escape_ascii(),
                        self.name_of(&inside)
                    )));
                };
                at.value().map_err(|fault| self.damaged(fault))
            }
            (Value::Array(items), Step::Element(index)) => {
                let (value, passed) = items.nth(*index).map_err(|fault| self.damaged(fault))?;
                self.pass(passed)?;
                Ok(value)
            }
            _ => Err(MemoryImageError::unsound("a pointer refers to a part of a value that has no parts")),
        }
    }

    fn name_of(&self, inside: &Struct<'a>) -> String {
        match self.kind(inside.kind) {
            Some(kind) => kind.name.escape_ascii().to_string(),
            None => "an unnamed struct".to_owned(),
        }
    }

    fn find_fields<const N: usize>(
        &self,
        inside: &Struct<'a>,
        names: &[&[u8]; N],
    ) -> Result<[Option<Wire<'a>>; N], MemoryImageError> {
        let mut found = [None; N];
        let Some(kind) = self.kind(inside.kind) else { return Ok(found) };
        let mut at = inside.fields;
        at.enter_fields(kind.fields.len()).map_err(|fault| self.damaged(fault))?;
        let mut missing = N;
        for field in &kind.fields {
            if let Some(slot) = names.iter().position(|name| name == field)
                && let Some(found @ None) = found.get_mut(slot)
            {
                *found = Some(at);
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
            at.skip().map_err(|fault| self.damaged(fault))?;
        }
        self.pass(at.position().saturating_sub(inside.fields.position()))?;
        Ok(found)
    }

    fn pass(&self, bytes: usize) -> Result<(), MemoryImageError> {
        let left = self.search.get().checked_sub(bytes as u64);
        self.search.set(left.ok_or_else(|| MemoryImageError::unsound("too many searches of the same objects"))?);
        Ok(())
    }

    /// Returns the fields `names` of `value`, which must be a struct of the type `of`.
    pub(crate) fn fields<const N: usize>(
        &self,
        value: Value<'a>,
        of: &'static str,
        names: [&'static str; N],
    ) -> Result<[Field<'a>; N], MemoryImageError> {
        let Value::Struct(inside) = value else {
            return Err(MemoryImageError::different(format!("expected {of}, found a value that is not a struct")));
        };
        if self.kind(inside.kind).is_none_or(|kind| kind.name != of.as_bytes()) {
            return Err(MemoryImageError::different(format!("expected {of}, found {}", self.name_of(&inside))));
        }
        let found = self.find_fields(&inside, &names.map(str::as_bytes))?;
        let mut fields = [Field { at: inside.fields, of, name: "" }; N];
        for ((field, at), name) in fields.iter_mut().zip(found).zip(names) {
            let Some(at) = at else { return Err(MemoryImageError::different(format!("{of} has no field {name}"))) };
            *field = Field { at, of, name };
        }
        Ok(fields)
    }

    /// Returns the value of `field`.
    pub(crate) fn value(&self, field: Field<'a>) -> Result<Value<'a>, MemoryImageError> {
        field.at.value().map_err(|fault| self.damaged(fault))
    }

    fn odd(field: Field<'a>, wanted: &str) -> MemoryImageError {
        MemoryImageError::different(format!("the field {} of {} is not {wanted}", field.name, field.of))
    }

    /// Returns a non-negative number.
    pub(crate) fn unsigned(&self, field: Field<'a>) -> Result<u64, MemoryImageError> {
        match self.number(self.value(field)?)? {
            Value::Nil => Ok(0),
            Value::Uint(number) => Ok(number),
            Value::Int(number) => u64::try_from(number).map_err(|_| Self::odd(field, "positive")),
            _ => Err(Self::odd(field, "a number")),
        }
    }

    /// Returns a non-negative 32-bit number.
    pub(crate) fn unsigned_32(&self, field: Field<'a>) -> Result<u32, MemoryImageError> {
        u32::try_from(self.unsigned(field)?).map_err(|_| Self::odd(field, "a 32-bit number"))
    }

    /// Returns an integer.
    pub(crate) fn signed(&self, field: Field<'a>) -> Result<i64, MemoryImageError> {
        match self.number(self.value(field)?)? {
            Value::Nil => Ok(0),
            Value::Int(number) => Ok(number),
            _ => Err(Self::odd(field, "a number")),
        }
    }

    /// Returns the number in an atomic number, and other values unchanged.
    fn number(&self, value: Value<'a>) -> Result<Value<'a>, MemoryImageError> {
        let Value::Struct(inside) = value else { return Ok(value) };
        let is_atomic = self.kind(inside.kind).is_some_and(|kind| kind.name.starts_with(ATOMIC.as_bytes()));
        if !is_atomic {
            return Ok(value);
        }
        match self.find_fields(&inside, &[b"value"])? {
            [Some(at)] => at.value().map_err(|fault| self.damaged(fault)),
            [None] => Err(MemoryImageError::different(format!("{} has no field value", self.name_of(&inside)))),
        }
    }

    /// Returns a boolean.
    pub(crate) fn truth(&self, field: Field<'a>) -> Result<bool, MemoryImageError> {
        match self.value(field)? {
            Value::Nil => Ok(false),
            Value::Bool(truth) => Ok(truth),
            _ => Err(Self::odd(field, "a boolean")),
        }
    }

    pub(crate) fn text(&self, field: Field<'a>) -> Result<&'a [u8], MemoryImageError> {
        match self.value(field)? {
            Value::Nil => Ok(b""),
            Value::Text(text) => Ok(text),
            _ => Err(Self::odd(field, "a string")),
        }
    }

    /// Returns the target of the pointer in `field`, or `None` for a null pointer.
    pub(crate) fn target(&self, field: Field<'a>) -> Result<Option<Place<'a>>, MemoryImageError> {
        match self.value(field)? {
            Value::Nil => Ok(None),
            Value::Ref(reference) => self.follow(&reference),
            _ => Err(Self::odd(field, "a pointer")),
        }
    }

    /// Returns the target of the pointer in `field`, which must not be null.
    pub(crate) fn must(&self, field: Field<'a>) -> Result<Place<'a>, MemoryImageError> {
        let nowhere =
            || MemoryImageError::unsound(format!("the field {} of {} is a null pointer", field.name, field.of));
        self.target(field)?.ok_or_else(nowhere)
    }

    /// Returns the elements of the slice in `field`, and the number of the object that contains
    /// them.
    pub(crate) fn items(&self, field: Field<'a>) -> Result<Option<(usize, Items<'a>)>, MemoryImageError> {
        let (length, array) = match self.value(field)? {
            Value::Nil => return Ok(None),
            Value::Slice { length, array } => (length, array),
            _ => return Err(Self::odd(field, "a slice")),
        };
        match self.follow(&array)? {
            None if length == 0 => Ok(None),
            Some(Place { object, value: Value::Array(items) }) if items.left() == length => Ok(Some((object, items))),
            _ => Err(Self::odd(field, "a slice of an array")),
        }
    }

    /// Returns the next element.
    pub(crate) fn item(&self, items: &mut Items<'a>) -> Result<Option<Value<'a>>, MemoryImageError> {
        items.next().map_err(|fault| self.damaged(fault))
    }

    /// Returns the pairs of the map that the pointer in `field` refers to, and the number of its
    /// object.
    pub(crate) fn pairs(&self, field: Field<'a>) -> Result<Option<(usize, Pairs<'a>)>, MemoryImageError> {
        match self.target(field)? {
            None => Ok(None),
            Some(Place { object, value: Value::Map(pairs) }) => Ok(Some((object, pairs))),
            Some(_) => Err(Self::odd(field, "a map")),
        }
    }

    /// Returns the next pair, whose key must be a string.
    pub(crate) fn pair(&self, pairs: &mut Pairs<'a>) -> Result<Option<(&'a [u8], Value<'a>)>, MemoryImageError> {
        match pairs.next().map_err(|fault| self.damaged(fault))? {
            None => Ok(None),
            Some((Value::Text(key), value)) => Ok(Some((key, value))),
            Some(_) => Err(MemoryImageError::different("a map has keys that are not strings")),
        }
    }
}

#[cfg(test)]
mod tests;
