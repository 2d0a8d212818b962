//! What becomes of a frame, by the program's type and result.

use skep::{Outcome, Program, Redirect};

/// What to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Nothing,
    Pass,
    /// Out of the interface that it came in on.
    Back,
    Redirect(Redirect),
    /// The program says "redirect", and no helper said where.
    Nowhere,
}

pub(super) fn decide(program: &Program, outcome: &Outcome) -> Decision {
    by_verdict(program.program_type().name, outcome.verdict, outcome.result, outcome.redirect)
}

fn by_verdict(
    program_type: &str,
    verdict: Option<&str>,
    result: u64,
    redirect: Option<Redirect>,
) -> Decision {
    match (program_type, verdict) {
        // A filter returns how many bytes of the packet its socket gets.
        ("socket_filter", _) if result as u32 == 0 => Decision::Nothing,
        ("socket_filter", _) => Decision::Pass,
        (_, Some("redirect")) => match redirect {
            // Another CPU goes on with it in the kernel.
            Some(Redirect::Cpu { .. }) => Decision::Pass,
            Some(to) => Decision::Redirect(to),
            None => Decision::Nowhere,
        },
        ("xdp", Some("pass")) => Decision::Pass,
        ("xdp", Some("tx")) => Decision::Back,
        ("xdp", _) => Decision::Nothing,
        // Linux takes these from the packet's way; what it does not know counts as "unspec".
        (_, Some("shot" | "stolen" | "queued" | "trap")) => Decision::Nothing,
        _ => Decision::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_verdicts() {
        let xdp = |verdict, redirect| by_verdict("xdp", verdict, 0, redirect);
        let device = Redirect::Device { index: 3, ingress: false };
        assert_eq!(xdp(Some("aborted"), None), Decision::Nothing);
        assert_eq!(xdp(Some("drop"), Some(device)), Decision::Nothing);
        assert_eq!(xdp(Some("pass"), None), Decision::Pass);
        assert_eq!(xdp(Some("tx"), None), Decision::Back);
        assert_eq!(xdp(Some("redirect"), Some(device)), Decision::Redirect(device));
        assert_eq!(xdp(Some("redirect"), Some(Redirect::Cpu { cpu: 1 })), Decision::Pass);
        assert_eq!(xdp(Some("redirect"), None), Decision::Nowhere);
        assert_eq!(xdp(None, None), Decision::Nothing, "a result that is no verdict aborts");
        let tc = |verdict| by_verdict("sched_cls", verdict, 0, None);
        for passed in ["unspec", "ok", "reclassify", "pipe", "repeat"] {
            assert_eq!(tc(Some(passed)), Decision::Pass, "{passed}");
        }
        for taken in ["shot", "stolen", "queued", "trap"] {
            assert_eq!(tc(Some(taken)), Decision::Nothing, "{taken}");
        }
        assert_eq!(tc(None), Decision::Pass);
        assert_eq!(by_verdict("socket_filter", None, 0, None), Decision::Nothing);
        assert_eq!(by_verdict("socket_filter", None, 64, None), Decision::Pass);
        assert_eq!(by_verdict("socket_filter", None, 1 << 32, None), Decision::Nothing);
    }
}
