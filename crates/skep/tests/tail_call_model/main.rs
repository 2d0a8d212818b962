//! Tail calls that are patched while other threads run them: every interleaving of a small model.
//!
//! A tail call unwinds its frame and jumps to a program. Both must happen or neither. Programs are installed and
//! removed while threads are anywhere on the way, and on aarch64 a CPU may execute what it fetched before the last
//! change.
//!
//! ```text
//!    caller                 stub: never changed           program
//!    ┌───────────────┐      ┌──────────────────┐         ┌──────────┐
//!    │ ...           │      │ count left?      │         │          │
//!    │ site: jmp ────┼─────>│ unwind           │    ┌───>│ ...      │      one word decides: nop or jmp stub
//!    │ ...           │      │ jmp ─────────────┼────┘    │          │
//!    └───────────────┘      └──────────────────┘         └──────────┘
//!
//!    updater   build, poke, make caches right, retire the old
//!    keeper                                       └── membarrier SYNC_CORE ── cookie ── wait ──── reclaim
//!
//!    a reader
//!    fetches   old    old or new                      old or new              new               new
//!    runs      old    old or new                      old or new              old or new        new
//! ```
//!
//! The order has these reasons. No CPU may be sent to unwritten code. A retired object can still be fetched until
//! CPUs have synchronised, so that comes before the cookie. A CPU that has fetched it by then is in a section, and
//! the cookie waits for that. The unwinding and the jump are in one text, which outlives every CPU in it, so no
//! poked word can cause the forbidden state.
//!
//! [`machine`] models the hardware; [`updater`], [`keeper`], [`host`] and [`reader`] model skep; [`check`] has the
//! properties of each state; [`explore`] visits all states. [`Mistake`] lists wrong protocols, and each is shown to
//! fail: a model that cannot fail proves nothing. The published order with two words and two pokes is here too
//! ([`Shape::Pair`]), with the waits that it needs.
//!
//! Not modelled: several sites of a slot (they are poked alike, and each is one word), the detection of grace
//! periods (skep-rcu has its own models), and tearing of a word (one aligned store). Reclaiming is one step.

mod check;
mod explore;
mod host;
mod keeper;
mod machine;
mod reader;
mod set;
mod state;
mod steps;
mod updater;

use std::collections::{BTreeSet, HashSet};
use std::env;
use std::time::Instant;

use self::check::{Sight, Violation};
use self::explore::Report;
use self::machine::Fetch;
use self::state::{Mistake, Model, Scope, Shape, State};

/// Enough for most mistakes to show.
const ONE: Scope = Scope { cpus: 1, updaters: 1, updates: 3, places: 6, waiting: 1, synchronizes: false };

const TWO_READERS: Scope = Scope { cpus: 2, ..ONE };

const TWO_UPDATERS: Scope = Scope { updaters: 2, ..ONE };

/// With a host that waits until no CPU runs what was replaced.
const WITH_HOST: Scope = Scope { synchronizes: true, ..ONE };

/// Enough updates that memory is reused repeatedly.
const LONG: Scope = Scope { updates: 5, ..ONE };

/// Two of each. `SKEP_MODEL_UPDATES` sets the number of updates: 3 give half a million states, 4 give eleven
/// million and need some gigabytes.
fn full() -> Scope {
    let updates =
        env::var("SKEP_MODEL_UPDATES").map_or(2, |updates| updates.parse().expect("a number of updates"));
    Scope { cpus: 2, updaters: 2, updates, ..ONE }
}

fn right(shape: Shape, fetch: Fetch, scope: Scope) -> Model {
    Model { fetch, shape, mistake: None, scope }
}

fn explore(model: Model) -> Report {
    let start = Instant::now();
    let report = model.explore();
    let Model { fetch, shape, mistake, .. } = model;
    let what = mistake.map_or(String::from("right"), |mistake| format!("{mistake:?}"));
    let (states, steps) = (report.states, report.steps);
    eprintln!("{shape:?}, {fetch:?}, {what}: {states} states, {steps} steps, {:.2?}", start.elapsed());
    for (violation, trace) in &report.violations {
        eprintln!("{violation:?}:\n{trace}");
    }
    report
}

/// Explores at least that many states without a violation, and all of these events.
fn assert_holds(model: Model, states: usize, sights: &[Sight]) {
    let report = explore(model);
    assert!(report.violations.is_empty(), "{model:?}: {:?}", report.violations.keys());
    assert!(report.states >= states, "{model:?}: no more than {} states", report.states);
    let unseen: Vec<_> = sights.iter().filter(|sight| !report.sights.contains(sight)).collect();
    assert!(unseen.is_empty(), "{model:?}: {unseen:?} not seen");
}

/// Expects exactly these violations from the mistake, with coherent and with weak fetching. Prints the path to
/// each.
fn assert_finds(shape: Shape, mistake: Mistake, scope: Scope, coherent: &[Violation], weak: &[Violation]) {
    for (fetch, expected) in [(Fetch::Coherent, coherent), (Fetch::Weak, weak)] {
        let model = Model { fetch, shape, mistake: Some(mistake), scope };
        let report = explore(model);
        let found: BTreeSet<_> = report.violations.keys().copied().collect();
        assert_eq!(found, expected.iter().copied().collect(), "{model:?}");
    }
}

/// Events that must occur in a correct model of a site and its stubs.
const STUB_SIGHTS: [Sight; 8] = [
    Sight::InRetiredStub,
    Sight::UnwoundInRetiredStub,
    Sight::InRetiredTarget,
    Sight::Reuse,
    Sight::RetiredWhileWaiting,
    Sight::ProgramKept,
    Sight::QuietWithEntry,
    Sight::QuietWithout,
];

const PAIR_SIGHTS: [Sight; 5] = [
    Sight::InRetiredTarget,
    Sight::Reuse,
    Sight::RetiredWhileWaiting,
    Sight::QuietWithEntry,
    Sight::QuietWithout,
];

// The real protocol.

#[test]
fn a_site_with_stubs_is_right_with_weak_fetches() {
    let weak = |scope| right(Shape::SiteAndStub, Fetch::Weak, scope);
    assert_holds(weak(full()), 5_000, &[Sight::StaleFetch, Sight::Contention]);
    assert_holds(weak(TWO_READERS), 30_000, &STUB_SIGHTS);
    assert_holds(weak(TWO_UPDATERS), 30_000, &STUB_SIGHTS);
}

#[test]
fn a_site_with_stubs_is_right_with_coherent_fetches() {
    let coherent = |scope| right(Shape::SiteAndStub, Fetch::Coherent, scope);
    assert_holds(coherent(full()), 5_000, &[Sight::Contention]);
    assert_holds(coherent(TWO_READERS), 30_000, &STUB_SIGHTS);
}

#[test]
fn a_site_with_stubs_is_right_over_many_updates() {
    assert_holds(right(Shape::SiteAndStub, Fetch::Weak, LONG), 60_000, &STUB_SIGHTS);
}

#[test]
fn synchronize_returns_after_every_cpu_has_left_replaced_programs() {
    for fetch in [Fetch::Coherent, Fetch::Weak] {
        let scope = Scope { cpus: 2, updates: 2, ..WITH_HOST };
        assert_holds(right(Shape::SiteAndStub, fetch, scope), 8_000, &[Sight::RunWhileSynchronizing]);
        assert_holds(right(Shape::SiteAndStub, fetch, WITH_HOST), 8_000, &[Sight::RunWhileSynchronizing]);
    }
}

/// So what is shown for weak fetches is not shown for some other, smaller behaviour.
#[test]
fn weak_fetches_can_do_all_that_coherent_ones_can() {
    for shape in [Shape::SiteAndStub, Shape::Pair] {
        // Without the sets of fetchable words and explanations.
        let situations = |model: Model| -> HashSet<State> {
            let (_, states) = model.reach();
            states.into_keys().map(|state| state.without_fetches().canonical(&model)).collect()
        };
        let coherent = situations(right(shape, Fetch::Coherent, TWO_READERS));
        assert!(coherent.is_subset(&situations(right(shape, Fetch::Weak, TWO_READERS))), "{shape:?}");
    }
}

// Wrong protocols.

#[test]
fn without_synchronised_cpus_a_stale_fetch_ends_in_reclaimed_memory() {
    let weak = [Violation::RanReclaimed, Violation::RanLeftovers, Violation::RanUnexplained];
    assert_finds(Shape::SiteAndStub, Mistake::LeaveOutSync, ONE, &[], &weak);
}

#[test]
fn a_cookie_taken_before_cpus_synchronise_passes_too_early() {
    assert_finds(Shape::SiteAndStub, Mistake::TakeCookieBeforeSync, ONE, &[], &[Violation::RanReclaimed]);
}

#[test]
fn synchronize_needs_its_own_membarrier() {
    let weak = [Violation::RanAfterSynchronize];
    assert_finds(Shape::SiteAndStub, Mistake::LeaveSyncToKeeper, WITH_HOST, &[], &weak);
}

#[test]
fn objects_retired_during_a_membarrier_wait_for_the_next() {
    assert_finds(Shape::SiteAndStub, Mistake::JoinBatchAfterSync, ONE, &[], &[Violation::RanReclaimed]);
}

#[test]
fn code_retired_before_cache_cleaning_can_still_be_fetched() {
    let weak = [Violation::RanReclaimed, Violation::RanLeftovers, Violation::RanUnexplained];
    assert_finds(Shape::SiteAndStub, Mistake::RetireBeforeClean, ONE, &[], &weak);
}

#[test]
fn without_a_grace_period_a_reader_in_a_stub_loses_it() {
    let reclaimed = [Violation::RanReclaimed];
    assert_finds(Shape::SiteAndStub, Mistake::LeaveOutGrace, ONE, &reclaimed, &reclaimed);
}

#[test]
fn a_stub_written_after_the_poke_is_run_before_it_is_written() {
    let coherent = [Violation::RanUnwritten, Violation::UnwoundWithoutJump];
    let weak = [Violation::RanUnwritten, Violation::UnwoundWithoutJump, Violation::RanLeftovers];
    assert_finds(Shape::SiteAndStub, Mistake::PokeBeforeWriting, ONE, &coherent, &weak);
}

#[test]
fn a_program_dropped_before_the_poke_still_runs() {
    let coherent = [Violation::RanReclaimed, Violation::RanUnexplained];
    let weak = [Violation::RanReclaimed, Violation::RanLeftovers, Violation::RanUnexplained];
    assert_finds(Shape::SiteAndStub, Mistake::DropProgramBeforePoke, ONE, &coherent, &weak);
}

#[test]
fn a_program_that_was_installed_again_must_outlive_its_old_stub() {
    let (coherent, weak) = ([Violation::RanReclaimed], [Violation::RanReclaimed, Violation::RanLeftovers]);
    assert_finds(Shape::SiteAndStub, Mistake::ForgetOtherReferences, ONE, &coherent, &weak);
}

#[test]
fn reused_memory_runs_old_code_unless_cpus_synchronise() {
    assert_finds(Shape::SiteAndStub, Mistake::ReuseWithoutSync, ONE, &[], &[Violation::RanLeftovers]);
}

#[test]
fn updaters_without_mutual_exclusion_leave_slot_and_site_different() {
    let both = [Violation::RanReclaimed, Violation::RanUnexplained];
    let scope = Scope { updates: 2, ..TWO_UPDATERS };
    assert_finds(Shape::SiteAndStub, Mistake::LeaveOutLock, scope, &both, &both);
}

#[test]
fn a_lock_never_released_stops_everything() {
    assert_finds(
        Shape::SiteAndStub,
        Mistake::KeepLock,
        TWO_UPDATERS,
        &[Violation::Stuck],
        &[Violation::Stuck],
    );
}

#[test]
fn a_replaced_program_that_is_not_retired_leaks() {
    assert_finds(
        Shape::SiteAndStub,
        Mistake::ForgetReplaced,
        ONE,
        &[Violation::Leaked],
        &[Violation::Leaked],
    );
}

#[test]
fn stubs_are_bounded_only_if_updaters_check_the_backlog() {
    let scope = Scope { updates: 4, places: 8, waiting: 0, ..ONE };
    let both = [Violation::TooManyStubs];
    assert_finds(Shape::SiteAndStub, Mistake::BuildWithoutBound, scope, &both, &both);
}

// Two words and two pokes.

#[test]
fn a_pair_is_right_with_a_grace_period_between_its_pokes() {
    for fetch in [Fetch::Coherent, Fetch::Weak] {
        assert_holds(right(Shape::Pair, fetch, full()), 1_000, &[Sight::InRetiredTarget]);
        assert_holds(right(Shape::Pair, fetch, TWO_READERS), 8_000, &PAIR_SIGHTS);
    }
}

#[test]
fn a_pair_without_a_grace_period_reaches_the_forbidden_state() {
    let both = [Violation::UnwoundWithoutJump];
    assert_finds(Shape::Pair, Mistake::LeaveOutGraceBetween, ONE, &both, &both);
}

#[test]
fn a_pair_without_cpu_synchronisation_reaches_the_forbidden_state() {
    assert_finds(Shape::Pair, Mistake::LeaveOutSyncBetween, ONE, &[], &[Violation::UnwoundWithoutJump]);
}

/// The trace as a failed test prints it.
#[test]
fn a_counterexample_has_a_readable_trace() {
    let mistake = Some(Mistake::LeaveOutGraceBetween);
    let report = explore(Model { mistake, ..right(Shape::Pair, Fetch::Coherent, ONE) });
    let told = report.violations[&Violation::UnwoundWithoutJump].to_string();
    let expected = "   \
   1  updater 1  builds program 1 at p0
   2  updater 1  takes the lock; the slot held nothing, and now program 1
   3  updater 1  stores jmp p0 to the second word
   4  updater 1  has made the caches right
   5  reader 1   enters a read section
   6  reader 1   synchronises its CPU
   7  updater 1  stores nop to the site
   8  updater 1  has made the caches right
   9  updater 1  has nothing to retire
  10  updater 1  wants to remove what is installed
  11  updater 1  takes the lock; the slot held program 1, and now nothing
  12  reader 1   fetches nop at the site
  13  updater 1  stores jmp over to the site
  14  updater 1  has made the caches right
  15  reader 1   unwinds its frame, in line
  16  reader 1   synchronises its CPU
  17  updater 1  stores nop to the second word
  18  reader 1   fetches nop at the second word
      ==> a frame is unwound and no jump taken
";
    assert_eq!(told, expected);
}
