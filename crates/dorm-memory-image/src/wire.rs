//! The values of gVisor's saved state, one by one, as encoded in the stream.
//!
//! A value is a tag and a body; a composite body contains more values, and a pointer is the number
//! of another object. The stream was written by a process that its guest may have taken over: every
//! length is checked against the remaining bytes, nothing is allocated, and nesting is limited.

mod skip;

use self::skip::is_empty;

/// A fault in the bytes, and its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) what: &'static str,
    pub(crate) at: usize,
}

type Result<T> = std::result::Result<T, Fault>;

/// The tags of values in the stream.
mod tag {
    pub(crate) const BOOL: u64 = 0;
    pub(crate) const INT: u64 = 1;
    pub(crate) const UINT: u64 = 2;
    pub(crate) const FLOAT_32: u64 = 3;
    pub(crate) const FLOAT_64: u64 = 4;
    pub(crate) const NIL: u64 = 5;
    pub(crate) const REF: u64 = 6;
    pub(crate) const STRING: u64 = 7;
    pub(crate) const SLICE: u64 = 8;
    pub(crate) const ARRAY: u64 = 9;
    pub(crate) const MAP: u64 = 10;
    pub(crate) const STRUCT: u64 = 11;
    pub(crate) const NO_FIELDS: u64 = 12;
    pub(crate) const FIELDS: u64 = 13;
    pub(crate) const INTERFACE: u64 = 14;
    pub(crate) const COMPLEX_64: u64 = 15;
    pub(crate) const COMPLEX_128: u64 = 16;
    pub(crate) const TYPE: u64 = 17;
}

/// A position in the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A value. The content of a composite value is read on demand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    /// The zero value of any type.
    Nil,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Text(&'a [u8]),
    Ref(Ref<'a>),
    Slice {
        length: u64,
        array: Ref<'a>,
    },
    Array(Items<'a>),
    Map(Pairs<'a>),
    Struct(Struct<'a>),
    /// Values that are never needed: interfaces, floating-point and complex numbers.
    Other,
}

/// A pointer: to an object, or to a field or an element within it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ref<'a> {
    /// The number of the object; 0 is the null pointer.
    pub(crate) root: u64,
    steps: u64,
    dots: Wire<'a>,
}

/// One step of a [`Ref`] within its object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step<'a> {
    Element(u64),
    Field(&'a [u8]),
}

/// The number of a struct's type, and the position of its fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Struct<'a> {
    pub(crate) kind: u64,
    pub(crate) fields: Wire<'a>,
}

/// The elements of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items<'a> {
    left: u64,
    tag: u64,
    at: Wire<'a>,
}

/// The pairs of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs<'a> {
    left: u64,
    tags: Option<(u64, u64)>,
    at: Wire<'a>,
}

impl<'a> Wire<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn at(self, position: usize) -> Self {
        Self { at: position, ..self }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn left(&self) -> u64 {
        self.bytes.len().saturating_sub(self.at) as u64
    }

    pub(crate) fn fault<T>(&self, what: &'static str) -> Result<T> {
        Err(Fault { what, at: self.at })
    }

    #[inline]
    pub(crate) fn uint(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for step in 0..10 {
            let Some(&byte) = self.bytes.get(self.at) else { return self.fault("it ends in the middle of a number") };
            if step == 9 && byte > 1 {
                return self.fault("a number is too large");
            }
            self.at += 1;
            number |= u64::from(byte & 0x7f) << (7 * step);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        self.fault("a number has no last byte")
    }

    pub(crate) fn int(&mut self) -> Result<i64> {
        let number = self.uint()?;
        let half = (number >> 1).cast_signed();
        Ok(if number & 1 == 0 { half } else { !half })
    }

    /// Reads a number of items that take at least a byte each.
    pub(crate) fn count(&mut self) -> Result<u64> {
        let count = self.uint()?;
        if count > self.left() { self.fault("it ends before the announced length") } else { Ok(count) }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        match end.and_then(|end| Some((end, self.bytes.get(self.at..end)?))) {
            Some((end, taken)) => {
                self.at = end;
                Ok(taken)
            }
            None => self.fault("it ends in the middle of a string"),
        }
    }

    pub(crate) fn text(&mut self) -> Result<&'a [u8]> {
        let length = self.uint()?;
        self.take(length)
    }

    /// Returns whether the next value describes a type. If so, moves past its tag.
    pub(crate) fn is_type(&mut self) -> Result<bool> {
        let mut ahead = *self;
        let is_type = ahead.uint()? == tag::TYPE;
        if is_type {
            *self = ahead;
        }
        Ok(is_type)
    }

    /// Returns the value at this position, without moving.
    pub(crate) fn value(mut self) -> Result<Value<'a>> {
        let tag = self.uint()?;
        self.body(tag)
    }

    /// Reads the number of fields of a struct whose type has `known` of them. The first field
    /// follows.
    pub(crate) fn enter_fields(&mut self, known: usize) -> Result<()> {
        match known {
            0 => Ok(()),
            // A single field has no count.
            1 => Ok(()),
            _ => {
                if self.uint()? != tag::FIELDS {
                    return self.fault("a struct has no fields");
                }
                if self.count()? != known as u64 {
                    return self.fault("a struct has the wrong number of fields");
                }
                Ok(())
            }
        }
    }

    fn body(mut self, tag: u64) -> Result<Value<'a>> {
        Ok(match tag {
            tag::BOOL => Value::Bool(self.uint()? == 1),
            tag::INT => Value::Int(self.int()?),
            tag::UINT => Value::Uint(self.uint()?),
            tag::NIL => Value::Nil,
            tag::REF => Value::Ref(self.reference()?),
            tag::STRING => Value::Text(self.text()?),
            tag::SLICE => {
                let length = self.uint()?;
                let _capacity = self.uint()?;
                Value::Slice { length, array: self.reference()? }
            }
            tag::ARRAY => {
                let left = self.uint()?;
                let tag = if left == 0 { tag::NIL } else { self.uint()? };
                Value::Array(Items { left, tag, at: self })
            }
            tag::MAP => Value::Map(Pairs { left: self.uint()?, tags: None, at: self }),
            tag::STRUCT => Value::Struct(Struct { kind: self.uint()?, fields: self }),
            tag::INTERFACE | tag::FLOAT_32 | tag::FLOAT_64 | tag::COMPLEX_64 | tag::COMPLEX_128 => Value::Other,
            _ => return self.fault("unknown kind of value"),
        })
    }

    fn reference(&mut self) -> Result<Ref<'a>> {
        let root = self.uint()?;
        let steps = self.count()?;
        let reference = Ref { root, steps, dots: *self };
        for _ in 0..steps {
            self.step()?;
        }
        if steps != 0 {
            self.skip_type(0)?;
        }
        Ok(reference)
    }

    fn step(&mut self) -> Result<Step<'a>> {
        let step = self.int()?;
        match u64::try_from(step) {
            Ok(index) => Ok(Step::Element(index)),
            Err(_) => self.take(step.unsigned_abs()).map(Step::Field),
        }
    }
}

impl<'a> Ref<'a> {
    /// Returns the steps from the object to the target, in the order to take them.
    pub(crate) fn steps<const MAX: usize>(&self) -> Result<([Step<'a>; MAX], usize)> {
        let mut steps = [Step::Element(0); MAX];
        let count = usize::try_from(self.steps).unwrap_or(usize::MAX);
        let mut dots = self.dots;
        // The last step is encoded first.
        let Some(filled) = steps.get_mut(..count) else {
            return dots.fault("a pointer refers too deep into an object");
        };
        for step in filled.iter_mut().rev() {
            *step = dots.step()?;
        }
        Ok((steps, count))
    }
}

impl<'a> Items<'a> {
    /// Returns the number of remaining elements.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn next(&mut self) -> Result<Option<Value<'a>>> {
        if self.left == 0 {
            return Ok(None);
        }
        // Elements that take no bytes could be announced in any number.
        if is_empty(self.tag) {
            return self.at.fault("the elements of an array take no bytes");
        }
        self.left -= 1;
        let value = self.at.body(self.tag)?;
        self.at.skip_body(self.tag, 0)?;
        Ok(Some(value))
    }

    /// Returns element `index`, and the number of bytes skipped to find it.
    pub(crate) fn nth(&self, index: u64) -> Result<(Value<'a>, usize)> {
        let mut items = *self;
        for _ in 0..index {
            if items.next()?.is_none() {
                break;
            }
        }
        match items.next()? {
            Some(value) => Ok((value, items.at.position().saturating_sub(self.at.position()))),
            None => self.at.fault("a pointer refers past the end of an array"),
        }
    }
}

impl<'a> Pairs<'a> {
    pub(crate) fn next(&mut self) -> Result<Option<(Value<'a>, Value<'a>)>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let at = &mut self.at;
        let (key_tag, value_tag) = match self.tags {
            Some(tags) => tags,
            None => (at.uint()?, tag::NIL),
        };
        let key = at.body(key_tag)?;
        at.skip_body(key_tag, 0)?;
        let value_tag = if self.tags.is_some() { value_tag } else { at.uint()? };
        if is_empty(key_tag) {
            return at.fault("the keys of a map take no bytes");
        }
        let value = at.body(value_tag)?;
        at.skip_body(value_tag, 0)?;
        self.tags = Some((key_tag, value_tag));
        Ok(Some((key, value)))
    }
}

#[cfg(test)]
mod tests;
