//! Keeps the C library's fast process creation in a static binary.
//!
//! The standard library uses `posix_spawn` only if it finds these two functions, and looks for them
//! by weak references, which do not link anything from a static library. Without them it copies the
//! agent's address space for every process, which takes milliseconds under gVisor. Nothing here is
//! ever called.

#![cfg(target_env = "gnu")]
#![allow(unsafe_code)]

type Function = unsafe extern "C" fn();

// SAFETY: both are functions of glibc; only their addresses are taken, so their signatures do not
// matter.
unsafe extern "C" {
    fn gnu_get_libc_version();
    fn posix_spawn_file_actions_addchdir_np();
}

#[used]
static KEPT: [Function; 2] = [gnu_get_libc_version, posix_spawn_file_actions_addchdir_np];
