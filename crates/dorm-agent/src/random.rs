//! Texts that no other agent has, nor a fork of this one. They come from the kernel each time, as a
//! fork has a copy of all memory.

use std::io;

use rustix::rand::GetRandomFlags;

/// Returns 16 random hexadecimal digits.
pub(crate) fn text() -> io::Result<String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}
