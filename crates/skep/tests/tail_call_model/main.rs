//! Tail calls that are patched while other threads run them: every interleaving of a small model.
//!
//! The problem: a tail call unwinds its frame and jumps to a program. Both must happen or neither; programs come and go
//! while threads are anywhere on the way; and on aarch64 a CPU may execute what it fetched before the last change.
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
//! Why in this order: nobody may be sent to what is not written. What is retired can still be fetched until CPUs have
//! synchronised, so that comes before the cookie. Who has fetched it by then is in a section, and for these the cookie
//! waits. The unwinding and the jump are in one text, and that text outlives whoever is in it: no word that is poked
//! could bring the forbidden state about.
//!
//! [`machine`] is what hardware does, [`updater`], [`keeper`], [`host`] and [`reader`] are what we do, [`check`] is
//! what must hold in each state, and [`explore`] goes through all of them. [`Mistake`] lists what would be wrong, and
//! each is shown to be: a model that cannot fail proves nothing. The published order with two words and two pokes is
//! here too ([`Shape::Pair`]), with what it must wait for in between.
//!
//! What is not modelled: several sites of a slot (they are poked alike, and each is one word); how a grace period is
//! told (skep-rcu's own models); tearing of a word (one aligned store). Reclaiming is one step.

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

/// With a host that waits until nobody is in what was replaced.
const WITH_HOST: Scope = Scope { synchronizes: true, ..ONE };

/// So many updates that memory is used again and again.
const LONG: Scope = Scope { updates: 5, ..ONE };

/// Two of each. `SKEP_MODEL_UPDATES` may ask for more updates: with 3 they are half a million states, with 4 eleven
/// million, and some gigabytes.
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

/// Nothing is violated in all of at least so many states, in which all these things were seen.
fn assert_holds(model: Model, states: usize, sights: &[Sight]) {
    let report = explore(model);
    assert!(report.violations.is_empty(), "{model:?}: {:?}", report.violations.keys());
    assert!(report.states >= states, "{model:?}: no more than {} states", report.states);
    let unseen: Vec<_> = sights.iter().filter(|sight| !report.sights.contains(sight)).collect();
    assert!(unseen.is_empty(), "{model:?}: {unseen:?} not seen");
}

/// What the mistake lets happen, on a machine that fetches coherently and on one that fetches weakly: exactly this. The
/// way to each is printed.
fn assert_finds(shape: Shape, mistake: Mistake, scope: Scope, coherent: &[Violation], weak: &[Violation]) {
    for (fetch, expected) in [(Fetch::Coherent, coherent), (Fetch::Weak, weak)] {
        let model = Model { fetch, shape, mistake: Some(mistake), scope };
        let report = explore(model);
        let found: BTreeSet<_> = report.violations.keys().copied().collect();
        assert_eq!(found, expected.iter().copied().collect(), "{model:?}");
    }
}

/// What must have been seen where a site and its stubs hold.
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

// What we do.

#[test]
fn a_site_with_stubs_is_right_where_fetches_are_weak() {
    let weak = |scope| right(Shape::SiteAndStub, Fetch::Weak, scope);
    assert_holds(weak(full()), 5_000, &[Sight::StaleFetch, Sight::Contention]);
    assert_holds(weak(TWO_READERS), 30_000, &STUB_SIGHTS);
    assert_holds(weak(TWO_UPDATERS), 30_000, &STUB_SIGHTS);
}

#[test]
fn a_site_with_stubs_is_right_where_fetches_are_coherent() {
    let coherent = |scope| right(Shape::SiteAndStub, Fetch::Coherent, scope);
    assert_holds(coherent(full()), 5_000, &[Sight::Contention]);
    assert_holds(coherent(TWO_READERS), 30_000, &STUB_SIGHTS);
}

#[test]
fn a_site_with_stubs_is_right_over_many_updates() {
    assert_holds(right(Shape::SiteAndStub, Fetch::Weak, LONG), 60_000, &STUB_SIGHTS);
}

#[test]
fn nobody_is_in_what_was_replaced_when_synchronize_returns() {
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
        // Without what a CPU may fetch, and what would explain it.
        let situations = |model: Model| -> HashSet<State> {
            let (_, states) = model.reach();
            states.into_keys().map(|state| state.without_fetches().canonical(&model)).collect()
        };
        let coherent = situations(right(shape, Fetch::Coherent, TWO_READERS));
        assert!(coherent.is_subset(&situations(right(shape, Fetch::Weak, TWO_READERS))), "{shape:?}");
    }
}

// What would be wrong.

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
fn synchronize_needs_a_membarrier_of_its_own_where_the_keeper_took_what_was_retired() {
    let weak = [Violation::RanAfterSynchronize];
    assert_finds(Shape::SiteAndStub, Mistake::LeaveSyncToKeeper, WITH_HOST, &[], &weak);
}

#[test]
fn what_is_retired_during_a_membarrier_must_wait_for_the_next() {
    assert_finds(Shape::SiteAndStub, Mistake::JoinBatchAfterSync, ONE, &[], &[Violation::RanReclaimed]);
}

#[test]
fn what_is_retired_before_the_caches_are_right_can_still_be_fetched() {
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
fn an_old_program_dropped_before_the_poke_is_run_through_its_stub() {
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
fn reused_memory_runs_its_old_code_unless_cpus_synchronise() {
    assert_finds(Shape::SiteAndStub, Mistake::ReuseWithoutSync, ONE, &[], &[Violation::RanLeftovers]);
}

#[test]
fn updaters_that_do_not_exclude_each_other_leave_slot_and_site_different() {
    let both = [Violation::RanReclaimed, Violation::RanUnexplained];
    let scope = Scope { updates: 2, ..TWO_UPDATERS };
    assert_finds(Shape::SiteAndStub, Mistake::LeaveOutLock, scope, &both, &both);
}

#[test]
fn a_lock_that_is_kept_stops_everything() {
    assert_finds(
        Shape::SiteAndStub,
        Mistake::KeepLock,
        TWO_UPDATERS,
        &[Violation::Stuck],
        &[Violation::Stuck],
    );
}

#[test]
fn what_is_replaced_and_not_retired_is_lost() {
    assert_finds(
        Shape::SiteAndStub,
        Mistake::ForgetReplaced,
        ONE,
        &[Violation::Leaked],
        &[Violation::Leaked],
    );
}

#[test]
fn stubs_are_bounded_only_if_updaters_look_at_what_waits() {
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
fn a_pair_without_the_grace_period_comes_to_the_forbidden_state() {
    let both = [Violation::UnwoundWithoutJump];
    assert_finds(Shape::Pair, Mistake::LeaveOutGraceBetween, ONE, &both, &both);
}

#[test]
fn a_pair_without_synchronised_cpus_comes_to_the_forbidden_state_where_fetches_are_weak() {
    assert_finds(Shape::Pair, Mistake::LeaveOutSyncBetween, ONE, &[], &[Violation::UnwoundWithoutJump]);
}

/// As a reader of a failed test would see it.
#[test]
fn a_counterexample_tells_how_it_comes_about() {
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
