//! The registers of a stopped thread, for making system calls.

/// The result of an interrupted call that must be restarted, in the kernel's own numbers.
const AGAIN: std::ops::RangeInclusive<i64> = -514..=-512;
/// The same, if it is restarted by another call.
const RESTART_BLOCK: i64 = -516;

/// The registers of one thread.
pub(super) type Registers = libc::user_regs_struct;

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::{AGAIN, RESTART_BLOCK, Registers};

    /// `syscall`.
    pub(in super::super) const CALL: &[u8] = &[0x0f, 0x05];

    /// Returns the address of the next instruction.
    pub(in super::super) fn place(registers: &Registers) -> usize {
        registers.rip as usize
    }

    /// Returns the registers before the interrupted call, so that it is restarted. `None` if they
    /// cannot be determined.
    pub(in super::super) fn before_call(mut registers: Registers) -> Option<Registers> {
        let answer = registers.rax as i64;
        if registers.orig_rax as i64 >= 0 && (AGAIN.contains(&answer) || answer == RESTART_BLOCK) {
            registers.rax = if answer == RESTART_BLOCK { libc::SYS_restart_syscall as u64 } else { registers.orig_rax };
            registers.rip -= CALL.len() as u64;
        }
        // The kernel must not restart a call.
        registers.orig_rax = u64::MAX;
        Some(registers)
    }

    /// Returns the registers for making a call.
    pub(in super::super) fn calling(mut registers: Registers, call: i64, operands: [usize; 6]) -> Registers {
        registers.rax = call as u64;
        let [rdi, rsi, rdx, r10, r8, r9] = operands.map(|operand| operand as u64);
        (registers.rdi, registers.rsi, registers.rdx) = (rdi, rsi, rdx);
        (registers.r10, registers.r8, registers.r9) = (r10, r8, r9);
        registers
    }

    /// Returns the result of a call.
    pub(in super::super) fn answer(registers: &Registers) -> i64 {
        registers.rax as i64
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use super::{AGAIN, RESTART_BLOCK, Registers};

    /// `svc #0`.
    pub(in super::super) const CALL: &[u8] = &[0x01, 0x00, 0x00, 0xd4];

    /// Returns the address of the next instruction.
    pub(in super::super) fn place(registers: &Registers) -> usize {
        registers.pc as usize
    }

    /// Returns `None` if the thread was interrupted in a call, since its first operand is then
    /// overwritten.
    pub(in super::super) fn before_call(registers: Registers) -> Option<Registers> {
        let answer = registers.regs[0] as i64;
        (!AGAIN.contains(&answer) && answer != RESTART_BLOCK).then_some(registers)
    }

    /// Returns the registers for making a call.
    pub(in super::super) fn calling(mut registers: Registers, call: i64, operands: [usize; 6]) -> Registers {
        registers.regs[8] = call as u64;
        for (register, operand) in registers.regs.iter_mut().zip(operands) {
            *register = operand as u64;
        }
        registers
    }

    /// Returns the result of a call.
    pub(in super::super) fn answer(registers: &Registers) -> i64 {
        registers.regs[0] as i64
    }
}

pub(super) use arch::{CALL, answer, before_call, calling, place};

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn stopped(call: i64, answer: i64) -> Registers {
        // SAFETY: numbers only.
        #[allow(unsafe_code)]
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        (registers.rip, registers.orig_rax, registers.rax) = (1000, call as u64, answer as u64);
        registers
    }

    #[test]
    fn a_thread_that_was_interrupted_in_a_call_makes_it_again() {
        let before = before_call(stopped(libc::SYS_read, -512)).unwrap();
        assert_eq!((before.rip, before.rax), (998, libc::SYS_read as u64));
        let before = before_call(stopped(libc::SYS_nanosleep, -516)).unwrap();
        assert_eq!((before.rip, before.rax), (998, libc::SYS_restart_syscall as u64));
    }

    #[test]
    fn a_thread_that_was_in_no_call_continues_where_it_was() {
        for registers in [stopped(-1, -512), stopped(-1, 7), stopped(libc::SYS_read, 7)] {
            let before = before_call(registers).unwrap();
            assert_eq!((before.rip, before.rax), (1000, registers.rax));
        }
    }
}
