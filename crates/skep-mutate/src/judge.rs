//! Runs tests on mutants, on several threads.
//!
//! Most mutants are noticed by one of the first tests. Only those that pass all tests are compiled once more, to see
//! whether their machine code differs at all.

use crate::error::Error;
use crate::mutants::{Mutant, Mutants, Subject};
use crate::score::{Fate, Judged, Score};
use skep::{Module, Object, Runtime};
use skep_test::{Options, Suite, TestResult};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

impl Mutants {
    /// Runs the tests on each of these mutants until one fails. The tests must be of this object
    /// ([`Suite::retain_object`]). `ended` is called after each mutant, from the threads that run them. What a run may
    /// take is in [`Options::budget`]: a run that takes more breaks its test, so the mutant is noticed.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyFails`] if a test fails or breaks on the unchanged object.
    pub fn judge(
        &self,
        mutants: &[&Mutant],
        tests: &Suite,
        options: &Options,
        ended: &(dyn Fn() + Sync),
    ) -> Result<Score, Error> {
        let original = Arc::new(Object::parse(self.original())?);
        if let Some(TestResult { file, name, .. }) = tests.first_failure(&original, options) {
            return Err(Error::AlreadyFails { file: file.display().to_string(), name });
        }
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = if options.jobs == 0 { processors() } else { options.jobs };
        // Relaxed: it only deals out numbers; results are handed over by the join at the scope's end.
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut done = Vec::new();
            while let Some(&mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                let fate = self.fate(mutant, &original, tests, options);
                ended();
                done.push(Judged { mutant: mutant.clone(), fate });
            }
            done
        };
        let mut judged: Vec<Judged> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (1..jobs.clamp(1, mutants.len().max(1))).map(|_| scope.spawn(worker)).collect();
            let mut judged = worker();
            for thread in threads {
                match thread.join() {
                    Ok(done) => judged.extend(done),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            judged
        });
        judged.sort_by_key(|judged| judged.mutant.number);
        Ok(Score { judged })
    }

    fn fate(&self, mutant: &Mutant, original: &Object, tests: &Suite, options: &Options) -> Fate {
        let programs = || mutant.slots.iter().map(|&(index, slot)| (&self.programs[index], slot));
        let Ok(object) = Object::parse(&self.bytes(mutant)) else { return Fate::Refused };
        if programs().any(|(program, _)| object.verify(&program.name, program.options).is_err()) {
            return Fate::Refused;
        }
        let object = Arc::new(object);
        if let Some(TestResult { file, name, .. }) = tests.first_failure(&object, options) {
            return Fate::Noticed { file: file.display().to_string(), test: name };
        }
        // A slot that is not reached has the same code whatever is there.
        let reached = |(program, slot): (&Subject, usize)| {
            program.verified.facts().get(slot).is_none_or(|fact| fact.reached)
        };
        if !programs().any(reached) {
            return Fate::Dead;
        }
        let same = |(program, _): (&Subject, usize)| code_is_same(original, &object, program);
        if programs().all(same) { Fate::Equivalent } else { Fate::Survived }
    }
}

/// Whether a program has the same machine code in both objects. It is compared for maps at the same addresses.
fn code_is_same(original: &Object, changed: &Object, program: &Subject) -> bool {
    let load = |runtime: &Runtime, object: &Object, maps: Option<&Module>| {
        let linker = runtime.linker(object).only(&program.name).buffer_len(program.options.buffer_len);
        match maps {
            Some(old) => linker.reuse_maps(old),
            None => linker,
        }
        .load()
    };
    let code = |module: &Module| {
        let target = skep::jit::Target::X86_64;
        module
            .program(&program.name)
            .and_then(|program| program.emit(target).ok())
            .map(|emitted| emitted.bytes)
    };
    let Ok(runtime) = Runtime::new() else { return false };
    let Ok(old) = load(&runtime, original, None) else { return false };
    let Ok(new) = load(&runtime, changed, Some(&old)) else { return false };
    code(&old).is_some_and(|old| code(&new) == Some(old))
}
