//! Handmade saved state, for tests.

/// Encodes values as in the stream.
pub(crate) fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value as u8) | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn zigzag(value: i64) -> Vec<u8> {
    number(if value < 0 { !((value.cast_unsigned()) << 1) } else { value.cast_unsigned() << 1 })
}

fn tagged(tag: u8, body: Vec<u8>) -> Vec<u8> {
    [vec![tag], body].concat()
}

pub(crate) fn nil() -> Vec<u8> {
    vec![5]
}

pub(crate) fn truth(value: bool) -> Vec<u8> {
    vec![0, value.into()]
}

pub(crate) fn int(value: i64) -> Vec<u8> {
    tagged(1, zigzag(value))
}

pub(crate) fn uint(value: u64) -> Vec<u8> {
    tagged(2, number(value))
}

pub(crate) fn text(value: &[u8]) -> Vec<u8> {
    tagged(7, [number(value.len() as u64), value.to_vec()].concat())
}

fn pointer(root: u64, field: &str) -> Vec<u8> {
    if field.is_empty() {
        return [number(root), number(0)].concat();
    }
    // The type is ignored.
    [number(root), number(1), zigzag(-(field.len() as i64)), field.as_bytes().to_vec(), vec![0, 1]].concat()
}

/// A pointer to object `root`, or to its field.
pub(crate) fn reference(root: u64, field: &str) -> Vec<u8> {
    tagged(6, pointer(root, field))
}

pub(crate) fn slice(length: u64, root: u64) -> Vec<u8> {
    tagged(8, [number(length), number(length), pointer(root, "")].concat())
}

/// An array; only the first value keeps its tag.
pub(crate) fn array(values: &[Vec<u8>]) -> Vec<u8> {
    let mut body = number(values.len() as u64);
    for (index, value) in values.iter().enumerate() {
        body.extend(&value[usize::from(index > 0)..]);
    }
    tagged(9, body)
}

/// A map; only the first pair keeps its tags.
pub(crate) fn map(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut body = number(pairs.len() as u64);
    for (index, (key, value)) in pairs.iter().enumerate() {
        let skipped = usize::from(index > 0);
        body.extend(&key[skipped..]);
        body.extend(&value[skipped..]);
    }
    tagged(10, body)
}

/// One saved object with everything reachable from it.
#[derive(Default)]
pub(crate) struct Saved {
    types: Vec<(String, Vec<String>)>,
    objects: Vec<Vec<u8>>,
}

impl Saved {
    /// Adds a struct. All structs of one type must have the same fields.
    pub(crate) fn make(&mut self, name: &str, fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let names: Vec<_> = fields.iter().map(|(name, _)| (*name).to_owned()).collect();
        let known = self.types.iter().position(|(known, _)| known == name);
        let kind = known.unwrap_or_else(|| {
            self.types.push((name.to_owned(), names.clone()));
            self.types.len() - 1
        });
        assert_eq!(self.types[kind].1, names, "{name}");
        let values: Vec<u8> = fields.iter().flat_map(|(_, value)| value.clone()).collect();
        let inside = match fields.len() {
            0 => vec![12],
            1 => values,
            count => [vec![13], number(count as u64), values].concat(),
        };
        tagged(11, [number(kind as u64 + 1), inside].concat())
    }

    /// Reserves an object and returns its number.
    pub(crate) fn room(&mut self) -> u64 {
        self.objects.push(nil());
        self.objects.len() as u64
    }

    pub(crate) fn put(&mut self, number: u64, value: Vec<u8>) {
        self.objects[usize::try_from(number).unwrap() - 1] = value;
    }

    pub(crate) fn add(&mut self, value: Vec<u8>) -> u64 {
        let number = self.room();
        self.put(number, value);
        number
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = number(self.objects.len() as u64 | 1 << 63);
        for (name, fields) in &self.types {
            bytes.push(17);
            bytes.extend(number(name.len() as u64));
            bytes.extend(name.as_bytes());
            bytes.extend(number(fields.len() as u64));
            for field in fields {
                bytes.extend(number(field.len() as u64));
                bytes.extend(field.as_bytes());
            }
        }
        for (index, object) in self.objects.iter().enumerate() {
            bytes.extend(uint(index as u64 + 1));
            bytes.extend(object);
        }
        bytes
    }
}
