//! Jumps between bytes, by their written distances.

use super::*;
use crate::arch::x86_64::{Jump, X86_64};

/// Code in which a byte stands for itself, and `(from, to)` are jumps between bytes.
fn assemble(bytes: usize, mut jumps: Vec<(usize, usize)>) -> Assembly<X86_64> {
    jumps.sort_unstable();
    let mut code = Assembly::new(bytes + 1, bytes);
    for at in 0..=bytes {
        code.bind(at as Label);
        for &(_, to) in jumps.iter().filter(|&&(from, _)| from == at) {
            code.fragment(Fragment::Jump { jump: Jump::Always, target: to as Label });
        }
        if at < bytes {
            code.put([0x90; 16], 1);
        }
    }
    code
}

/// Where each jump of the written code leads, by its place, as offsets.
fn written(layout: &Layout<X86_64>) -> Vec<(i64, i64)> {
    let mut out = vec![0; layout.len()];
    layout.write(0, &mut out).expect("in reach");
    let mut at = 0;
    let mut found = Vec::new();
    while at < out.len() {
        let (len, disp) = match out[at] {
            0x90 => (1, None),
            0xeb => (2, Some(i64::from(out[at + 1] as i8))),
            0xe9 => {
                let disp = i32::from_le_bytes(out[at + 1..at + 5].try_into().expect("four bytes"));
                (5, Some(i64::from(disp)))
            }
            other => panic!("{other:#x} at {at}"),
        };
        if let Some(disp) = disp {
            found.push((at as i64, at as i64 + len as i64 + disp));
        }
        at += len;
    }
    found
}

fn expect(bytes: usize, jumps: &[(usize, usize)]) -> usize {
    let layout = assemble(bytes, jumps.to_vec()).relax();
    let mut expected: Vec<_> = jumps.to_vec();
    expected.sort_unstable();
    let targets: Vec<i64> = written(&layout).into_iter().map(|(_, to)| to).collect();
    let offsets: Vec<i64> =
        expected.into_iter().map(|(_, to)| i64::from(layout.offset(to as Label))).collect();
    assert_eq!(targets, offsets);
    layout.len()
}

#[test]
fn jumps_are_short_as_far_as_they_reach_and_not_farther() {
    for (distance, len) in [(1, 2), (127, 2), (128, 5)] {
        assert_eq!(expect(300, &[(10, 10 + distance)]), 300 + len, "{distance} forward");
    }
    for (distance, len) in [(0, 2), (126, 2), (127, 5)] {
        assert_eq!(expect(300, &[(200, 200 - distance)]), 300 + len, "{distance} backward");
    }
}

#[test]
fn a_jump_to_itself_is_not_a_jump_to_the_next_byte() {
    let layout = assemble(3, vec![(1, 1)]).relax();
    assert_eq!(written(&layout), [(1, 1)]);
}

#[test]
fn chains_of_jumps_at_the_short_limit_become_long() {
    // Each jump spans a later one and 127 bytes with it: when the last becomes long, so must all before it.
    for count in 1..60 {
        let jumps: Vec<_> =
            (0..count).map(|i| (i * 63, i * 63 + 125)).chain([(count * 63, count * 63 + 128)]).collect();
        let len = expect(count * 63 + 200, &jumps);
        assert_eq!(len, count * 63 + 200 + 5 * (count + 1), "{count} jumps");
    }
}

#[test]
fn distances_are_patched_or_refused_out_of_reach() {
    let code = |target| {
        let mut code = Assembly::<X86_64>::new(1, 1);
        code.put([0xe8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 5);
        code.patch_last(target);
        code.bind(0);
        code.put([0xc3; 16], 1);
        code.relax()
    };
    let mut out = [0; 6];
    code(Target::Label(0)).write(0x4000_0000_0000, &mut out).expect("in reach");
    assert_eq!(out, [0xe8, 0, 0, 0, 0, 0xc3]);
    code(Target::Address(0x4000_0000_0000)).write(0x4000_0000_0000, &mut out).expect("in reach");
    assert_eq!(out, [0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]);
    assert_eq!(code(Target::Address(0x5000_0000_0000)).write(0x4000_0000_0000, &mut out), None);
}

#[test]
fn a_buffer_that_is_too_short_is_refused() {
    let layout = assemble(10, vec![(2, 6)]).relax();
    assert_eq!(layout.write(0, &mut [0; 11]), None);
    assert_eq!(layout.write(0, &mut [0; 12]), Some(()));
}
