//! CPU masks: `bpf_cpumask_create` and its kin.
//!
//! A mask is an object as those of `bpf_obj_new` are ([`skep_maps::objects::Mask`]): it counts its owners, a kept
//! pointer owns it, and its memory waits for readers. It has a bit for each virtual CPU of the runtime, of which
//! `bpf_get_smp_processor_id` gives one. Numbers of CPUs are 32 bits wide; what is beyond the last CPU is never set,
//! and a function that finds no CPU returns the number of CPUs.

use super::objects;
use skep_abi::{CPU_MASK, RunEnv};
use skep_maps::objects::Mask;

/// `struct bpf_cpumask *bpf_cpumask_create(void)`. No CPU is set in it.
#[inline]
pub(super) unsafe fn create(env: *mut RunEnv) -> u64 {
    // SAFETY: by the caller's contract: this function allocates.
    unsafe { objects::obj_new(CPU_MASK.into(), env) }
}

/// `struct bpf_cpumask *bpf_cpumask_acquire(struct bpf_cpumask *cpumask)`.
#[inline]
pub(super) unsafe fn acquire(mask: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the program owns the mask, which counts its owners.
    unsafe { objects::refcount_acquire(mask, env) }
}

/// `void bpf_cpumask_release(struct bpf_cpumask *cpumask)`.
#[inline]
pub(super) unsafe fn release(mask: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the program owned the mask.
    unsafe { objects::obj_drop(mask, env) }
}

/// Functions of masks in brackets, and of the number of a CPU before them.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $(($cpu:ident))? [$($mask:ident),+] $body:expr;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub(super) unsafe fn $name($($cpu: u64,)? $($mask: u64,)+ _: *mut RunEnv) -> u64 {
            $(let $cpu = $cpu as u32;)?
            // SAFETY: the verifier proved that these are masks, which the program owns or found in this section.
            $(let $mask = unsafe { Mask::at($mask) };)+
            u64::from($body)
        }
    )*};
}

/// What a function without a result leaves in `r0`.
const NOTHING: u32 = 0;

functions! {
    /// `u32 bpf_cpumask_first(const struct cpumask *cpumask)`.
    first[mask] mask.next(0, |at| mask.word(at)).unwrap_or(mask.cpus());
    /// `u32 bpf_cpumask_first_zero(const struct cpumask *cpumask)`.
    first_zero[mask] mask.next(0, |at| !mask.word(at)).unwrap_or(mask.cpus());
    /// `u32 bpf_cpumask_first_and(const struct cpumask *src1, const struct cpumask *src2)`.
    first_and[a, b] a.next(0, |at| a.word(at) & b.word(at)).unwrap_or(a.cpus());
    /// `void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *cpumask)`.
    set_cpu(cpu)[mask] { mask.set(cpu); NOTHING };
    /// `void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *cpumask)`.
    clear_cpu(cpu)[mask] { mask.clear(cpu); NOTHING };
    /// `bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask)`.
    test_cpu(cpu)[mask] mask.test(cpu);
    /// `bool bpf_cpumask_test_and_set_cpu(u32 cpu, struct bpf_cpumask *cpumask)`.
    test_and_set_cpu(cpu)[mask] mask.set(cpu);
    /// `bool bpf_cpumask_test_and_clear_cpu(u32 cpu, struct bpf_cpumask *cpumask)`.
    test_and_clear_cpu(cpu)[mask] mask.clear(cpu);
    /// `void bpf_cpumask_setall(struct bpf_cpumask *cpumask)`.
    setall[mask] { mask.fill(|all, _| all); NOTHING };
    /// `void bpf_cpumask_clear(struct bpf_cpumask *cpumask)`.
    clear[mask] { mask.fill(|_, _| 0); NOTHING };
    /// `bool bpf_cpumask_and(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2)`: whether
    /// any CPU is in both.
    and[to, a, b] {
        let some = std::cell::Cell::new(false);
        to.fill(|_, at| {
            let both = a.word(at) & b.word(at);
            some.set(some.get() || both != 0);
            both
        });
        some.get()
    };
    /// `void bpf_cpumask_or(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2)`.
    or[to, a, b] { to.fill(|_, at| a.word(at) | b.word(at)); NOTHING };
    /// `void bpf_cpumask_xor(struct bpf_cpumask *dst, const struct cpumask *src1, const struct cpumask *src2)`.
    xor[to, a, b] { to.fill(|_, at| a.word(at) ^ b.word(at)); NOTHING };
    /// `bool bpf_cpumask_equal(const struct cpumask *src1, const struct cpumask *src2)`.
    equal[a, b] a.all(|_, at| a.word(at) == b.word(at));
    /// `bool bpf_cpumask_intersects(const struct cpumask *src1, const struct cpumask *src2)`.
    intersects[a, b] !a.all(|_, at| a.word(at) & b.word(at) == 0);
    /// `bool bpf_cpumask_subset(const struct cpumask *src1, const struct cpumask *src2)`: whether all CPUs of the first
    /// one are in the second one.
    subset[a, b] a.all(|_, at| a.word(at) & !b.word(at) == 0);
    /// `bool bpf_cpumask_empty(const struct cpumask *cpumask)`.
    empty[mask] mask.all(|_, at| mask.word(at) == 0);
    /// `bool bpf_cpumask_full(const struct cpumask *cpumask)`.
    full[mask] mask.all(|all, at| mask.word(at) == all);
    /// `void bpf_cpumask_copy(struct bpf_cpumask *dst, const struct cpumask *src)`.
    copy[to, from] { to.fill(|_, at| from.word(at)); NOTHING };
    /// `u32 bpf_cpumask_weight(const struct cpumask *cpumask)`.
    weight[mask] mask.weight();
}

/// `u32 bpf_cpumask_any_distribute(const struct cpumask *cpumask)`.
#[inline]
pub(super) unsafe fn any_distribute(mask: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as for the other functions.
    unsafe { any(Mask::at(mask), Mask::at(mask), env) }
}

/// `u32 bpf_cpumask_any_and_distribute(const struct cpumask *src1, const struct cpumask *src2)`.
#[inline]
pub(super) unsafe fn any_and_distribute(a: u64, b: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: as for the other functions.
    unsafe { any(Mask::at(a), Mask::at(b), env) }
}

/// A CPU that is in both: the first one from a random CPU on, in a circle.
///
/// # Safety
///
/// `env` is the environment of the run in progress.
unsafe fn any(a: Mask<'_>, b: Mask<'_>, env: *mut RunEnv) -> u64 {
    let both = |at| a.word(at) & b.word(at);
    // SAFETY: by the caller's contract.
    let random = unsafe { super::system::get_prandom_u32(env) } as u32;
    let start = random.checked_rem(a.cpus()).unwrap_or(0);
    a.next(start, both).or_else(|| a.next(0, both)).unwrap_or(a.cpus()).into()
}
