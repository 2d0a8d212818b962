//! The path of a refusal has the steps that matter for it, and no others.

use crate::common::{check, host, kind, maps, program};
use skep_verifier::{Config, Refusal, Why, verify};

fn refusal(kind_name: &str, text: &str) -> Box<Refusal> {
    let mut unverified = program(kind(kind_name), text);
    unverified.maps = maps();
    verify(unverified, &Config::default()).expect_err(text)
}

/// Slot, reason and effect of each step.
fn path(kind_name: &str, text: &str) -> Vec<String> {
    let refusal = refusal(kind_name, text);
    refusal
        .path
        .iter()
        .map(|step| format!("{} {} {}", step.slot, step.why.name(), step.state).trim().to_owned())
        .collect()
}

#[test]
fn only_steps_that_made_the_value_are_on_the_path() {
    let text = "r6 = *(u32 *)(r1 + 0)     // data
                r7 = *(u32 *)(r1 + 4)     // data_end, of no account
                r8 = 5
                if r8 != 5 goto +0
                r9 = *(u32 *)(r1 + 12)
                if r9 == 1 goto +0        // irrelevant, too
                r2 = r6
                r2 += 12
                r0 = *(u8 *)(r2 + 0)
                exit";
    assert_eq!(
        path("xdp", text),
        ["0 makes r6 = pkt(r=0)", "6 makes r2 = pkt(r=0)", "7 makes r2 = pkt(off=12,r=0)"]
    );
}

#[test]
fn a_comparison_that_narrows_the_value_is_on_the_path() {
    let text = "r2 = *(u32 *)(r1 + 12)
                r1 = map_value[1]+0 ll
                if r2 > 100 goto +3
                r1 += r2
                r0 = *(u8 *)(r1 + 0)
                exit
                r0 = 0
                exit";
    assert_eq!(
        path("xdp", text),
        [
            "0 makes r2 = scalar(smin=0,smax=umax=0xffffffff,var_off=(0x0; 0xffffffff))",
            "1 makes r1 = map_value(map=bss,ks=4,vs=64)",
            "3 narrows r2 = scalar(smin=smin32=0,smax=umax=smax32=umax32=100,var_off=(0x0; 0x7f))",
            "4 makes r1 = map_value(map=bss,ks=4,vs=64,smin=smin32=0,smax=umax=smax32=umax32=100,var_off=(0x0; 0x7f))"
        ]
    );
}

#[test]
fn a_call_that_clobbered_the_value_is_on_the_path() {
    assert_eq!(path("xdp", "r2 = 4\ncall 5\nr0 = r2\nexit"), ["1 loses r2 is clobbered"]);
    let moved = "r6 = r1\nr7 = *(u32 *)(r1 + 0)\nr2 = 4\ncall 44\nr0 = *(u8 *)(r7 + 0)\nexit";
    assert_eq!(path("xdp", moved), ["3 loses r7 is invalidated"]);
}

#[test]
fn a_jump_over_a_missing_write_is_on_the_path() {
    let text = "r2 = *(u32 *)(r1 + 12)
                if r2 == 7 goto +1
                r0 = 1
                exit";
    let found = path("xdp", text);
    assert_eq!(found, ["1 skips instruction 2 would write r0"]);
    let stack = "r2 = *(u32 *)(r1 + 12)
                 *(u64 *)(r10 - 8) = r1
                 *(u8 *)(r10 - 8) = 0
                 if r2 == 7 goto +1
                 *(u64 *)(r10 - 8) = 1
                 r4 = *(u64 *)(r10 - 8)
                 r0 = 0
                 if r4 > 7 goto +0
                 exit";
    let skips = "3 skips instruction 4 would write r10-8";
    assert_eq!(path("xdp", stack), ["1 makes fp-8 = r1", "2 makes fp-8 = 0", skips]);
}

#[test]
fn a_value_is_followed_through_the_stack_and_calls() {
    let text = "r1 = map[0] ll
                r2 = r10
                r2 += -4
                *(u32 *)(r10 - 4) = 0
                call 1
                *(u64 *)(r10 - 16) = r0
                r6 = 1
                r1 = *(u64 *)(r10 - 16)
                call use
                exit
                use:
                r0 = *(u64 *)(r1 + 0)
                exit";
    assert_eq!(
        path("xdp", text),
        [
            "5 makes r0 = map_value_or_null(id=1,map=hash,ks=4,vs=16)",
            "6 makes fp-16 = r0",
            "8 makes r1 = map_value_or_null(id=1,map=hash,ks=4,vs=16)",
            "9 passes r1 = map_value_or_null(id=1,map=hash,ks=4,vs=16)",
        ]
    );
    let result = "call get\nr0 = *(u8 *)(r0 + 0)\nexit\nget:\nr0 = 4\nexit";
    assert_eq!(path("xdp", result), ["3 makes r0 = 4", "4 returns r0 = 4"]);
}

#[test]
fn without_a_writer_the_last_branch_is_on_the_path() {
    let text = "r2 = *(u32 *)(r1 + 0)
                if r2 == 1 goto +2
                r0 = 0
                exit
                if r2 > 5 goto +0
                r0 = r7
                exit";
    assert_eq!(path("tc", text), ["1 leads"]);
    assert_eq!(refusal("tc", text).path[0].text, "if r2 == 0x1 goto +0x2: taken");
}

#[test]
fn the_path_excludes_paths_walked_before() {
    // The branch walked first is safe; the value on the other is wrong.
    let text = "r2 = *(u32 *)(r1 + 12)
                r3 = map_value[1]+0 ll
                if r2 == 3 goto +2
                r3 += 8
                goto +1
                r3 += 63
                r0 = *(u64 *)(r3 + 0)
                exit";
    assert_eq!(
        path("xdp", text),
        [
            "1 makes r3 = map_value(map=bss,ks=4,vs=64)",
            "3 skips instruction 4 would write r3",
            "6 makes r3 = map_value(map=bss,ks=4,vs=64,off=63)",
        ]
    );
}

#[test]
fn a_loop_shows_each_of_its_branches_once() {
    let text = "r2 = *(u32 *)(r1 + 12)
                r3 = 0
                if r2 == 3 goto +1
                goto -2
                r0 = 0
                exit";
    let refusal = refusal("xdp", text);
    let texts: Vec<&str> = refusal.path.iter().map(|step| &*step.text).collect();
    assert_eq!(texts, ["if r2 == 0x3 goto +0x1: not taken"]);
}

#[test]
fn every_refusal_of_a_short_program_has_a_bounded_path() {
    let mut refused = 0;
    for a in ["r0 = r1", "r0 = *(u32 *)(r1 + 0)", "r0 = 7", "r0 = r10", "call 5"] {
        for b in ["r2 = r0", "r0 += r1", "*(u64 *)(r10 - 8) = r0", "if r0 == 0 goto +1", "r0 <<= 3"] {
            for c in ["r0 = *(u64 *)(r0 + 0)", "r0 = *(u64 *)(r10 - 8)", "r0 = r2", "*(u32 *)(r1 + 0) = r0"] {
                let Err(refusal) = check("xdp", &format!("{a}\n{b}\n{c}\nr0 = 0\nexit")) else { continue };
                refused += 1;
                assert!(refusal.path.len() <= 64);
                assert!(refusal.path.iter().all(|step| !step.text.is_empty()), "{refusal:?}");
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn steps_that_lead_into_a_callback_are_on_the_path() {
    let text = "r1 = 10
                r2 = func[each] ll
                r3 = r10
                r3 += -8
                *(u64 *)(r10 - 8) = 0
                r4 = 0
                call 181
                r0 = 0
                exit
                each:
                r3 = r2
                r0 = *(u64 *)(r3 + 8)
                r0 = 0
                exit";
    let found = path("xdp", text);
    assert!(found.iter().any(|step| step.contains("makes r3 = fp[0]-8")), "{found:?}");
    assert!(found.len() <= 4, "{found:?}");
}

#[test]
fn a_refusal_after_a_speculation_has_the_path_that_was_refused() {
    // The counter of such a loop is widened; the violation is after it. No walk is long enough to find it exactly.
    let text = "r6 = 0
                r7 = map_value[1]+0 ll
                may_goto +2
                r6 += 1
                goto -3
                r0 = 0
                if r6 < 100000000 goto +2
                r7 += 60
                r0 = *(u64 *)(r7 + 0)
                exit";
    let found = path("xdp", text);
    assert_eq!(
        found.iter().filter(|step| step.contains("makes")).collect::<Vec<_>>(),
        ["1 makes r7 = map_value(map=bss,ks=4,vs=64)", "8 makes r7 = map_value(map=bss,ks=4,vs=64,off=60)"],
        "{found:?}"
    );
}

#[test]
fn calls_have_names_in_refusals_and_their_paths() {
    let text = "r1 = map[6] ll\nr2 = 16\nr3 = 0\ncall 131\nif r0 == 0 goto out\nr6 = r0\nr1 = r0\nr2 = 0\ncall 132\n\
                r1 = r6\nr2 = 0\ncall 133\nout: r0 = 0\nexit";
    let refusal = refusal("xdp", text);
    assert!(refusal.reason.contains("the call of bpf_ringbuf_submit in 9 released"), "{refusal}");
    assert_eq!(refusal.insn, "call bpf_ringbuf_discard");
    // The call that ends the object's life is on the path.
    let end = refusal.path.iter().find(|step| step.slot == 9).expect("the release");
    assert_eq!((end.text.as_str(), end.why), ("call bpf_ringbuf_submit", Why::Loses));
}

/// Slot, call and reason of the steps that invalidated something, in a sleepable program.
fn losses(section: &str, text: &str) -> Vec<(u32, String, String)> {
    let refusal = host::check(section, text).expect_err(text);
    let loses = refusal.path.iter().filter(|step| step.why == Why::Loses);
    loses.map(|step| (step.slot, step.text.clone(), step.state.clone())).collect()
}

#[test]
fn the_end_of_a_protecting_section_is_on_the_path() {
    let left = "the RCU read section is left";
    let unlock = |slot| (slot, "call bpf_rcu_read_unlock".to_owned());
    let ended = "call 158\nr6 = r0\ncall @bpf_rcu_read_lock\nr7 = *(u64 *)(r6 + 40)\ncall @bpf_rcu_read_unlock\nr0 = 0\n\
                 r1 = r7\ncall @bpf_task_acquire\nr0 = 0\nexit";
    let found = losses("fentry.s/__x64_sys_read", ended);
    assert_eq!(found.iter().map(|(slot, text, _)| (*slot, text.clone())).collect::<Vec<_>>(), [unlock(4)]);
    assert!(found[0].2.contains("r7 = untrusted_ptr"), "{found:?}");
    // A pointer read after the section is not valid either.
    let late = "call 158\nr6 = r0\ncall @bpf_rcu_read_lock\ncall @bpf_rcu_read_unlock\nr7 = *(u64 *)(r6 + 40)\nr1 = r7\n\
                call @bpf_task_acquire\nr0 = 0\nexit";
    let (slot, text) = unlock(3);
    assert_eq!(losses("fentry.s/__x64_sys_read", late), [(slot, text, left.to_owned())]);
    // Without a section, no step is shown.
    let never = "call 158\nr6 = r0\nr7 = *(u64 *)(r6 + 40)\nr1 = r7\ncall @bpf_task_acquire\nr0 = 0\nexit";
    assert_eq!(losses("fentry.s/__x64_sys_read", never), []);
    let iterator = "call @bpf_rcu_read_lock\nr1 = r10\nr1 += -24\nr2 = 0\nr3 = 0\ncall @bpf_iter_task_new\n\
                    call @bpf_rcu_read_unlock\nr1 = r10\nr1 += -24\ncall @bpf_iter_task_next\nr0 = 0\nexit";
    let (slot, text) = unlock(6);
    assert_eq!(losses("fentry.s/__x64_sys_read", iterator), [(slot, text, left.to_owned())]);
}

#[test]
fn a_section_left_twice_shows_the_first_time() {
    let twice = |enter: &str, leave: &str| {
        format!("call @{enter}\ncall @{leave}\nr6 = 1\ncall @{leave}\nr0 = 0\nexit")
    };
    for (enter, leave, what) in [
        ("bpf_rcu_read_lock", "bpf_rcu_read_unlock", "the RCU read section is left"),
        ("bpf_preempt_disable", "bpf_preempt_enable", "the section with preemption disabled is left"),
    ] {
        let found = losses("tc", &twice(enter, leave));
        assert_eq!(found, [(1, format!("call {leave}"), what.to_owned())]);
    }
}

#[test]
fn a_lock_released_twice_shows_the_first_time() {
    let text = "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[8] ll\ncall 1\nif r0 == 0 goto out\nr6 = r0\n\
                r1 = r6\ncall 93\nr1 = r6\ncall 94\nr1 = r6\ncall 94\nout: r0 = 0\nexit";
    let refusal = refusal("xdp", text);
    let found: Vec<_> = refusal.path.iter().filter(|step| step.why == Why::Loses).collect();
    let [step] = found[..] else { panic!("{:?}", refusal.path) };
    assert_eq!((step.slot, &*step.state), (11, "the lock is released"));
}
