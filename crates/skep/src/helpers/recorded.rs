//! Helpers that write down what the program acquires and releases, for runs that may end early.
//!
//! Each row has what a helper does to the run's [ledger](crate::ending). Its recorded form is called instead of it
//! where runs of the program may end early; elsewhere nothing is written down, and nothing is paid.
//!
//! What is acquired is recorded after the call, and what is released is forgotten before it: between, a function of the
//! program may run, whose end must neither release twice nor miss anything. Sockets that programs look up are kept by
//! the run anyway, and read-side critical sections are counted in [`RunEnv::sections`]: both need no record.

use super::{bits, cpumask, dynptr, machine, own, ring};
use crate::ending::{Held, Release, forget, record};
use skep_abi::{HelperFn, RunEnv};
use skep_maps::objects::{self, List, Tree};
use skep_maps::{Map, lock};

/// What a helper does to the ledger.
#[derive(Clone, Copy)]
enum Effect {
    /// Its result is held, unless it is null.
    Acquires(Release),
    /// Its result is a node of an object that is held, unless it is null.
    AcquiresNode(NodeOf),
    /// What the first argument points to is held.
    Locks,
    /// The first argument is released.
    Releases,
    /// The object of the node in the second argument is given away.
    GivesNode(NodeOf),
    /// The second argument is given away, and the result is held, unless they are null.
    Exchanges,
    /// The fourth argument is a dynptr, whose record is held if there is one.
    AcquiresDynptr,
    /// The record of the dynptr in the first argument is released, if there is one.
    ReleasesDynptr,
    /// The first argument is an iterator over bits, which may hold a copy.
    AcquiresBits,
    /// The same iterator, which ends.
    ReleasesBits,
}

/// The object of a node.
type NodeOf = unsafe fn(u64) -> u64;

/// The recorded form of an implementation with that many arguments.
macro_rules! recorded {
    ($effect:expr, $implementation:path, $count:tt) => {{
        unsafe extern "C" fn call(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64 {
            const EFFECT: Effect = $effect;
            const PLAIN: HelperFn = helper!($implementation, $count);
            let args = [a, b, c, d, e];
            // SAFETY: the arguments and the environment are those of the call.
            unsafe {
                before(EFFECT, args, env);
                let result = PLAIN(a, b, c, d, e, env);
                after(EFFECT, args, result, env);
                result
            }
        }
        call as HelperFn
    }};
}

const OBJECT: Effect = Effect::Acquires(drop_object);

/// Helpers of Linux, ascending by number.
static HELPERS: [(u32, HelperFn); 9] = [
    (93, recorded!(Effect::Locks, super::lock::spin_lock, 1)),
    (94, recorded!(Effect::Releases, super::lock::spin_unlock, 1)),
    (131, recorded!(Effect::Acquires(discard), ring::reserve, 3)),
    (132, recorded!(Effect::Releases, ring::submit, 2)),
    (133, recorded!(Effect::Releases, ring::discard, 2)),
    (194, recorded!(Effect::Exchanges, super::objects::kptr_xchg, 2)),
    (198, recorded!(Effect::AcquiresDynptr, dynptr::ringbuf_reserve, 4)),
    (199, recorded!(Effect::ReleasesDynptr, dynptr::ringbuf_submit, 2)),
    (200, recorded!(Effect::ReleasesDynptr, dynptr::ringbuf_discard, 2)),
];

/// The runtime's own functions.
static FUNCTIONS: [(&str, HelperFn); 24] = [
    ("bpf_obj_new_impl", recorded!(OBJECT, super::objects::obj_new, 1)),
    ("bpf_obj_drop_impl", recorded!(Effect::Releases, super::objects::obj_drop, 1)),
    ("bpf_percpu_obj_new_impl", recorded!(OBJECT, super::objects::percpu_obj_new, 1)),
    ("bpf_percpu_obj_drop_impl", recorded!(Effect::Releases, super::objects::obj_drop, 1)),
    ("bpf_refcount_acquire_impl", recorded!(OBJECT, super::objects::refcount_acquire, 1)),
    ("bpf_list_push_front_impl", recorded!(Effect::GivesNode(List::object), super::objects::push_front, 2)),
    ("bpf_list_push_back_impl", recorded!(Effect::GivesNode(List::object), super::objects::push_back, 2)),
    ("bpf_list_pop_front", recorded!(Effect::AcquiresNode(List::object), super::objects::pop_front, 1)),
    ("bpf_list_pop_back", recorded!(Effect::AcquiresNode(List::object), super::objects::pop_back, 1)),
    ("bpf_rbtree_add_impl", recorded!(Effect::GivesNode(Tree::object), super::objects::rbtree_add, 3)),
    ("bpf_rbtree_remove", recorded!(Effect::AcquiresNode(Tree::object), super::objects::rbtree_remove, 2)),
    ("bpf_iter_bits_new", recorded!(Effect::AcquiresBits, bits::new, 3)),
    ("bpf_iter_bits_destroy", recorded!(Effect::ReleasesBits, bits::destroy, 1)),
    ("bpf_cpumask_create", recorded!(OBJECT, cpumask::create, 0)),
    ("bpf_cpumask_acquire", recorded!(OBJECT, cpumask::acquire, 1)),
    ("bpf_cpumask_release", recorded!(Effect::Releases, cpumask::release, 1)),
    ("bpf_task_acquire", recorded!(OBJECT, machine::acquire, 1)),
    ("bpf_task_release", recorded!(Effect::Releases, machine::release, 1)),
    ("bpf_task_from_pid", recorded!(OBJECT, machine::task_from_pid, 1)),
    ("bpf_task_from_vpid", recorded!(OBJECT, machine::task_from_pid, 1)),
    ("bpf_cgroup_acquire", recorded!(OBJECT, machine::acquire, 1)),
    ("bpf_cgroup_release", recorded!(Effect::Releases, machine::release, 1)),
    ("bpf_cgroup_ancestor", recorded!(OBJECT, machine::cgroup_ancestor, 2)),
    ("bpf_cgroup_from_id", recorded!(OBJECT, machine::cgroup_from_id, 1)),
];

/// The recorded form of that helper of Linux, if it has one.
pub(crate) fn helper(id: u32) -> Option<HelperFn> {
    Some(HELPERS[HELPERS.binary_search_by_key(&id, |(id, _)| *id).ok()?].1)
}

/// What [`own::provided`] has, in recorded forms.
pub(crate) fn functions() -> Vec<(u32, HelperFn)> {
    let mut all = own::provided();
    for (name, form) in FUNCTIONS {
        let number = skep_abi::own_kfunc_number(name);
        if let Some((_, call)) = all.iter_mut().find(|(of, _)| Some(*of) == number) {
            *call = form;
        }
    }
    all
}

/// # Safety
///
/// As for all helpers.
unsafe fn before(effect: Effect, args: [u64; 5], env: *mut RunEnv) {
    let gone = match effect {
        Effect::Releases => args[0],
        Effect::Exchanges => args[1],
        // SAFETY: the caller's promise, here and below: the program passes a node of an object that it owns,
        Effect::GivesNode(of) => unsafe { of(args[1]) },
        // SAFETY: a dynptr,
        Effect::ReleasesDynptr => unsafe { dynptr::record(args[0]) },
        // SAFETY: or an iterator.
        Effect::ReleasesBits => unsafe { bits::copy(args[0]) },
        _ => 0,
    };
    if gone != 0 {
        // SAFETY: the caller's promise.
        unsafe { forget(gone, env) };
    }
}

/// # Safety
///
/// As for all helpers; the call has returned the result.
unsafe fn after(effect: Effect, args: [u64; 5], result: u64, env: *mut RunEnv) {
    let (what, release): (u64, Release) = match effect {
        Effect::Acquires(release) => (result, release),
        Effect::Exchanges => (result, drop_object),
        // SAFETY: the caller's promise, here and below: the call returned a node,
        Effect::AcquiresNode(of) if result != 0 => (unsafe { of(result) }, drop_object),
        Effect::Locks => (args[0], unlock),
        // SAFETY: made a dynptr,
        Effect::AcquiresDynptr => (unsafe { dynptr::record(args[3]) }, discard),
        // SAFETY: or an iterator.
        Effect::AcquiresBits => (unsafe { bits::copy(args[0]) }, bits::give_up),
        _ => return,
    };
    if what != 0 {
        // SAFETY: the caller's promise.
        unsafe { record(Held { what, release }, env) };
    }
}

/// A record that was not submitted.
///
/// # Safety
///
/// As [`Release`], here and below.
unsafe fn discard(record: u64, _: u32) {
    // SAFETY: the caller's promise; the run's maps live.
    unsafe { Map::ring_discard_ptr(record as *mut u8, 0) };
}

unsafe fn unlock(at: u64, _: u32) {
    // SAFETY: the caller's promise.
    unsafe { lock::release(at as *mut u8) };
}

/// An owner of an object of any kind.
unsafe fn drop_object(object: u64, cpu: u32) {
    // SAFETY: the caller's promise.
    unsafe { objects::release(object, cpu) };
}

#[cfg(test)]
mod tests {
    use super::{FUNCTIONS, HELPERS};
    use crate::helpers::PROVIDED;
    use skep_abi::{ArgKind, DynptrArg, DynptrKind, HelperProto, KfuncFlags as F, OWN_KFUNCS};

    /// What the run keeps, or what has nothing to release.
    const SOCKETS: [u32; 4] = [84, 85, 86, 99];
    const NOTHING: [&str; 3] = ["bpf_iter_num_new", "bpf_iter_num_destroy", "bpf_task_get_cgroup1"];

    #[test]
    fn every_helper_that_acquires_or_releases_has_a_recorded_form() {
        let releases = |kind: &ArgKind| {
            matches!(
                kind,
                ArgKind::Record
                    | ArgKind::Released { .. }
                    | ArgKind::SpinLock { .. }
                    | ArgKind::KptrField
                    | ArgKind::Dynptr(DynptrArg::Release | DynptrArg::Make(DynptrKind::Ringbuf))
            )
        };
        let records = |proto: &HelperProto| proto.acquires || proto.args.iter().any(releases);
        for (id, _) in PROVIDED.iter().filter(|(id, _)| !SOCKETS.contains(id)) {
            let expected = skep_abi::linux_helper(*id).is_some_and(records);
            assert_eq!(super::helper(*id).is_some(), expected, "helper {id}");
        }
        assert!(HELPERS.is_sorted_by_key(|(id, _)| *id));
    }

    #[test]
    fn every_function_that_acquires_or_releases_has_a_recorded_form() {
        let flags = [F::ACQUIRE, F::RELEASE, F::INSERTS, F::ITER_NEW, F::ITER_DESTROY];
        for own in OWN_KFUNCS.iter().filter(|own| !NOTHING.contains(&own.name)) {
            let known = own.known().expect("known").flags;
            let expected = flags.iter().any(|flag| known.has(*flag));
            let recorded = FUNCTIONS.iter().any(|(name, _)| *name == own.name);
            assert_eq!(recorded, expected, "{}", own.name);
        }
    }
}
