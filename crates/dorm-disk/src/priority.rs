//! Who may use the disk first.

/// Lets every other thread of the host use the disk before this one, from now on. Where the disk's scheduler knows no
/// such classes it changes nothing.
pub fn give_way() {
    /// `IOPRIO_CLASS_IDLE` in the upper bits, no level.
    const IDLE: libc::c_int = 3 << 13;
    /// `IOPRIO_WHO_PROCESS`, and the calling thread.
    const WHO: [libc::c_int; 2] = [1, 0];
    // SAFETY: three numbers; the kernel reads and writes no memory of ours. A refusal leaves the priority as it was.
    #[allow(unsafe_code)]
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, WHO[0], WHO[1], IDLE)
    };
}
