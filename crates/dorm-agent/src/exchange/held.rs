//! A process with all its threads stopped, which executes system calls on request. When it is
//! dropped, it continues where it was.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::find;
use super::registers::{self, CALL, Registers};

/// How long a thread may take to stop, or to execute a call that cannot block.
const PATIENCE: Duration = Duration::from_secs(10);
/// An ending thread is a zombie after this time.
const ENDING: Duration = Duration::from_secs(1);
/// Every signal except those that cannot be blocked.
const ALL_SIGNALS: u64 = u64::MAX;
const WORD: usize = size_of::<usize>();

/// Why a process could not be made to do something.
#[derive(Debug)]
pub(super) struct HeldError {
    doing: &'static str,
    source: io::Error,
}

impl HeldError {
    pub(super) fn own(doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self { doing, source }
    }
}

impl std::fmt::Display for HeldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot {}: {}", self.doing, self.source)
    }
}

/// A process with all its threads stopped.
pub(super) struct Held {
    process: Pid,
    threads: Vec<Thread>,
    /// The state of its first thread, to be restored when it continues. `None` until the first
    /// call.
    before: Option<Before>,
}

struct Thread {
    id: Pid,
    /// Signals that arrived while it was stopped.
    signals: Vec<i32>,
    is_gone: bool,
}

struct Before {
    registers: Registers,
    mask: Option<u64>,
    /// The original bytes at the position of the system call instruction.
    instruction: Option<(usize, Vec<u8>)>,
}

impl Held {
    /// Stops a process. `None` if it has ended.
    pub(super) fn hold(process: Pid) -> io::Result<Option<Self>> {
        let mut held = Self { process, threads: Vec::new(), before: None };
        // Running threads may start others until all are stopped.
        loop {
            let known: HashSet<Pid> = held.threads.iter().map(|thread| thread.id).collect();
            let new: Vec<Pid> = threads(process).into_iter().filter(|id| !known.contains(id)).collect();
            if new.is_empty() {
                held.threads.retain(|thread| !thread.is_gone);
                return Ok((!held.threads.is_empty()).then_some(held));
            }
            for id in new {
                let mut thread = Thread { id, signals: Vec::new(), is_gone: false };
                match thread.stop() {
                    Ok(()) => {}
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => thread.is_gone = true,
                    Err(error) if error.raw_os_error() == Some(libc::EPERM) && ends(process, id) => {
                        thread.is_gone = true;
                    }
                    Err(error) => {
                        let name = find::name(process);
                        return Err(io::Error::other(format!("cannot stop {name}: {error}")));
                    }
                }
                held.threads.push(thread);
            }
        }
    }

    pub(super) fn process(&self) -> Pid {
        self.process
    }

    /// Returns a description of the process for people.
    pub(super) fn name(&self) -> String {
        find::name(self.process)
    }

    /// Makes the process execute a system call that does not block.
    pub(super) fn call(&mut self, doing: &'static str, call: i64, operands: [usize; 6]) -> Result<usize, HeldError> {
        self.begin().and_then(|()| self.try_call(call, operands)).map_err(HeldError::own(doing))
    }

    fn try_call(&mut self, call: i64, operands: [usize; 6]) -> io::Result<usize> {
        let (Some(thread), Some(before)) = (self.threads.first_mut(), &self.before) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        thread.set_registers(&registers::calling(before.registers, call, operands))?;
        // Once to its entry, once to its exit.
        for _ in 0..2 {
            thread.run_to_call()?;
        }
        let answer = registers::answer(&thread.registers()?);
        match usize::try_from(answer) {
            Ok(answer) => Ok(answer),
            Err(_) => Err(io::Error::from_raw_os_error(i32::try_from(-answer).unwrap_or(libc::EIO))),
        }
    }

    /// Prepares the first call.
    fn begin(&mut self) -> io::Result<()> {
        if self.before.is_some() {
            return Ok(());
        }
        let Some(thread) = self.threads.first_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        let registers = registers::before_call(thread.registers()?)
            .ok_or_else(|| io::Error::other("it was interrupted in a system call that cannot be restarted here"))?;
        let place = registers::place(&registers);
        let found = thread.read(place, CALL.len())?;
        let mask = thread.mask().ok();
        if mask.is_some() {
            thread.set_mask(ALL_SIGNALS)?;
        }
        let instruction = (found != CALL).then_some((place, found));
        let is_there = instruction.is_none();
        self.before = Some(Before { registers, mask, instruction });
        if !is_there {
            thread.write(place, CALL)?;
        }
        Ok(())
    }

    /// Reads its memory.
    pub(super) fn read(&self, at: usize, length: usize) -> Result<Vec<u8>, HeldError> {
        let wrong = HeldError::own("read its memory");
        let thread = self.threads.first().ok_or_else(|| wrong(io::ErrorKind::NotFound.into()))?;
        thread.read(at, length).map_err(wrong)
    }

    /// Writes its memory.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), HeldError> {
        let wrong = HeldError::own("write its memory");
        let thread = self.threads.first().ok_or_else(|| wrong(io::ErrorKind::NotFound.into()))?;
        thread.write(at, bytes).map_err(wrong)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let (Some(thread), Some(before)) = (self.threads.first(), self.before.take()) {
            // If the thread is gone, nothing needs to be restored.
            if let Some((place, bytes)) = before.instruction {
                thread.write(place, &bytes).ok();
            }
            if let Some(mask) = before.mask {
                thread.set_mask(mask).ok();
            }
            thread.set_registers(&before.registers).ok();
        }
        for thread in &self.threads {
            thread.release(self.process);
        }
    }
}

impl Thread {
    fn stop(&mut self) -> io::Result<()> {
        ptrace(libc::PTRACE_SEIZE, self.id, 0, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        ptrace(libc::PTRACE_INTERRUPT, self.id, 0, 0)?;
        let status = self.wait()?;
        if status >> 16 == 0 {
            // A signal was pending: the thread is stopped anyway, and gets the signal afterwards.
            self.signals.push(libc::WSTOPSIG(status));
        }
        Ok(())
    }

    /// Runs to the next entry or exit of a system call.
    fn run_to_call(&mut self) -> io::Result<()> {
        loop {
            ptrace(libc::PTRACE_SYSCALL, self.id, 0, 0)?;
            let status = self.wait()?;
            if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
                return Ok(());
            }
            if status >> 16 == 0 {
                self.signals.push(libc::WSTOPSIG(status));
            }
        }
    }

    /// Waits until the thread is stopped; returns why it is.
    fn wait(&self) -> io::Result<i32> {
        let end = Instant::now() + PATIENCE;
        let mut pause = Duration::from_micros(20);
        loop {
            let mut status = 0;
            // SAFETY: `status` is ours.
            #[allow(unsafe_code)]
            let found = unsafe { libc::waitpid(self.id.as_raw_pid(), &raw mut status, libc::__WALL | libc::WNOHANG) };
            match found {
                0 if Instant::now() > end => return Err(io::ErrorKind::TimedOut.into()),
                0 => {
                    // The kernel announces a stop only by a signal, which a library should not
                    // handle.
                    thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(5));
                }
                -1 => return Err(io::Error::last_os_error()),
                _ if libc::WIFSTOPPED(status) => return Ok(status),
                _ => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn registers(&self) -> io::Result<Registers> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        ptrace(libc::PTRACE_GETREGS, self.id, 0, registers.as_mut_ptr() as usize)?;
        // SAFETY: numbers only, which were zero before the kernel wrote them.
        #[allow(unsafe_code)]
        Ok(unsafe { registers.assume_init() })
    }

    #[cfg(target_arch = "x86_64")]
    fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        ptrace(libc::PTRACE_SETREGS, self.id, 0, std::ptr::from_ref(registers) as usize).map(drop)
    }

    #[cfg(target_arch = "aarch64")]
    fn registers(&self) -> io::Result<Registers> {
        let mut registers = MaybeUninit::<Registers>::zeroed();
        let vector = libc::iovec { iov_base: registers.as_mut_ptr().cast(), iov_len: size_of::<Registers>() };
        let set = libc::NT_PRSTATUS as usize;
        ptrace(libc::PTRACE_GETREGSET, self.id, set, std::ptr::from_ref(&vector) as usize)?;
        // SAFETY: numbers only, which were zero before the kernel wrote them.
        #[allow(unsafe_code)]
        Ok(unsafe { registers.assume_init() })
    }

    #[cfg(target_arch = "aarch64")]
    fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let base = std::ptr::from_ref(registers).cast_mut().cast();
        let vector = libc::iovec { iov_base: base, iov_len: size_of::<Registers>() };
        let set = libc::NT_PRSTATUS as usize;
        ptrace(libc::PTRACE_SETREGSET, self.id, set, std::ptr::from_ref(&vector) as usize).map(drop)
    }

    fn mask(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        ptrace(libc::PTRACE_GETSIGMASK, self.id, size_of::<u64>(), &raw mut mask as usize)?;
        Ok(mask)
    }

    fn set_mask(&self, mask: u64) -> io::Result<()> {
        ptrace(libc::PTRACE_SETSIGMASK, self.id, size_of::<u64>(), &raw const mask as usize).map(drop)
    }

    fn read(&self, at: usize, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length + WORD);
        while bytes.len() < length {
            bytes.extend(self.word(at + bytes.len())?.to_ne_bytes());
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        for (number, piece) in bytes.chunks(WORD).enumerate() {
            let place = at + number * WORD;
            let mut word = match piece.len() {
                WORD => [0; WORD],
                _ => self.word(place)?.to_ne_bytes(),
            };
            word[..piece.len()].copy_from_slice(piece);
            ptrace(libc::PTRACE_POKEDATA, self.id, place, usize::from_ne_bytes(word))?;
        }
        Ok(())
    }

    fn word(&self, at: usize) -> io::Result<usize> {
        let mut word = 0_usize;
        // The raw system call: the C library's wrapper returns a value that cannot be distinguished
        // from an error.
        // SAFETY: the kernel writes one word to `word`.
        #[allow(unsafe_code)]
        let answer =
            unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, self.id.as_raw_pid(), at, &raw mut word) };
        if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(word) }
    }

    /// Releases the thread, and sends it the signals it has missed.
    fn release(&self, process: Pid) {
        ptrace(libc::PTRACE_DETACH, self.id, 0, 0).ok();
        for signal in &self.signals {
            // SAFETY: numbers only.
            #[allow(unsafe_code)]
            unsafe {
                libc::syscall(libc::SYS_tgkill, process.as_raw_pid(), self.id.as_raw_pid(), *signal);
            }
        }
    }
}

/// Whether a thread that cannot be traced has ended, or ends within [`ENDING`]. The kernel refuses
/// to trace it before it is gone from `/proc`.
fn ends(process: Pid, thread: Pid) -> bool {
    let path = format!("/proc/{}/task/{}/stat", process.as_raw_pid(), thread.as_raw_pid());
    let end = Instant::now() + ENDING;
    loop {
        // The name before the state may contain anything.
        let state = fs::read_to_string(&path).ok().and_then(|text| text.rsplit_once(") ")?.1.chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn threads(process: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_pid())).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)).collect()
}

fn ptrace(request: libc::c_uint, thread: Pid, address: usize, data: usize) -> io::Result<usize> {
    // SAFETY: `address` and `data` are what `request` expects: numbers, or memory of ours that is
    // as large as it writes.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::syscall(libc::SYS_ptrace, request, thread.as_raw_pid(), address, data) };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}
