//! The I/O priority of threads.

/// Lets every other thread of the host use the disk before the calling thread from now on. Has no
/// effect if the disk's scheduler has no such priorities.
pub fn give_way() {
    /// `IOPRIO_CLASS_IDLE` in the upper bits, no level.
    const IDLE: libc::c_int = 3 << 13;
    /// `IOPRIO_WHO_PROCESS`, and the calling thread.
    const WHO: [libc::c_int; 2] = [1, 0];
    // SAFETY: three numbers; the kernel does not access our memory. If it refuses, the priority is
    // unchanged.
    #[allow(unsafe_code)]
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, WHO[0], WHO[1], IDLE)
    };
}
