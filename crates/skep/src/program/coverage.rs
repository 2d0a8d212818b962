//! What runs of a program have executed.

use super::Program;
use skep_abi::{BranchCount, CountsLink, LineInfo, Linkage};
use skep_verifier::Verified;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What the runs of a program have executed ([`Program::coverage`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coverage {
    /// By slot: how often the instruction was executed. `None` where no path leads, as the verifier found, and for the
    /// second slots of 64-bit loads.
    pub executions: Vec<Option<u64>>,
    /// Conditional jumps of which paths take both sides, ascending by slot.
    pub branches: Vec<BranchCount>,
    /// Source lines, ascending by slot. A line may be there several times; there are none if the object has no line
    /// information.
    pub lines: Vec<CoveredLine>,
}

/// Instructions of a source line, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoveredLine {
    /// The file, as the compiler named it.
    pub file: Arc<str>,
    /// Its number, from 1.
    pub line: u32,
    /// Its text; may be empty.
    pub text: Arc<str>,
    /// Its first slot, and the one behind its last.
    pub slots: (u32, u32),
    /// How often its most frequent instruction was executed; `None` if no path leads to any.
    pub executions: Option<u64>,
}

/// The linkage with counters for a program.
pub(super) fn counted(program: &Verified, linkage: &Linkage) -> Arc<Linkage> {
    let facts = program.facts();
    let starts = program.functions().iter().map(|function| function.start as usize);
    let ends = |helper| linkage.ends.as_ref().is_some_and(|ends| ends.is_after(helper));
    let counts = CountsLink::new(program.insns(), |slot| facts[slot].reached, starts, ends);
    Arc::new(Linkage { counts: Some(counts), ..linkage.clone() })
}

impl Program {
    /// What runs have executed since the program was loaded, or since [`Program::reset_coverage`], in this handle and
    /// its clones. `None` if the runtime does not count
    /// ([`RuntimeBuilder::coverage`](crate::RuntimeBuilder::coverage)).
    ///
    /// Counts are exact if threads run the program one after the other. If several run it at the same time, some may be
    /// lost; what was executed often enough to matter has a count above 0 nevertheless.
    ///
    /// ```
    /// use skep::{Object, Runtime};
    ///
    /// let runtime = Runtime::builder().coverage(true).build()?;
    /// let text = "r0 = 1\nif r2 > 3 goto out\nr0 = 2\nout: exit";
    /// let insns = skep::isa::assemble(text).expect("the text is right");
    /// let object = Object::from_insns("long", &skep::abi::RAW, insns);
    /// let module = runtime.linker(&object).buffer_len(8).load()?;
    /// let program = &module.programs()[0];
    /// program.run_raw(&mut [0; 8])?;
    /// let coverage = program.coverage().expect("the runtime counts");
    /// assert_eq!(coverage.executions[0], Some(1));
    /// # Ok::<(), skep::Error>(())
    /// ```
    pub fn coverage(&self) -> Option<Coverage> {
        let image = self.image();
        let counts = image.linkage.counts.as_ref()?;
        let executions = counts.executions();
        let lines = lines(image.verified.lines(), &executions);
        Some(Coverage { executions, branches: counts.branches(), lines })
    }

    /// Begins to count anew.
    pub fn reset_coverage(&self) {
        if let Some(counts) = &self.image().linkage.counts {
            counts.reset();
        }
    }

    /// The counters behind [`Program::coverage`], for tools that only look for changes, like fuzzers
    /// ([`CountsLink::counted`]); none if the runtime does not count. They are read and written with `Relaxed`.
    pub fn counters(&self) -> Vec<&AtomicU64> {
        self.image().linkage.counts.as_ref().map_or_else(Vec::new, CountsLink::counted)
    }
}

fn lines(lines: &[LineInfo], executions: &[Option<u64>]) -> Vec<CoveredLine> {
    let ends = lines.iter().skip(1).map(|next| next.slot).chain([executions.len() as u32]);
    let of = |(line, end): (&LineInfo, u32)| {
        let counts = executions.get(line.slot as usize..end as usize).unwrap_or_default();
        CoveredLine {
            file: Arc::clone(&line.file),
            line: line.line,
            text: Arc::clone(&line.text),
            slots: (line.slot, end),
            executions: counts.iter().copied().flatten().max(),
        }
    };
    lines.iter().zip(ends).map(of).collect()
}
