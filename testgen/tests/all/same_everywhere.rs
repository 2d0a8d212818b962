//! Programs from a fixed list of seeds leave the same state on every architecture, in the interpreter and as compiled
//! code.
//!
//! The expected states are recorded in `outcomes.txt`: a line for every two hundred seeds, with a digest of results,
//! memory, packets and maps. After an intended change of the generator, run this test with `SKEP_BLESS=1` to rewrite
//! the file.

use std::fmt::Write;
use std::path::Path;

use crate::common::{Lab, Outcome, difference, verified};
use skep_testgen::{Flavour, Host, Options, Source, structured};

const FLAVOURS: [Flavour; 3] = [Flavour::Buffer { len: 64 }, Flavour::Buffer { len: 256 }, Flavour::Xdp];

/// Number of seeds for one line of the file.
const SEEDS: u64 = 200;
const LINES: usize = 25;
const INPUTS: u64 = 2;

#[test]
fn equal_seeds_leave_equal_states_on_every_architecture() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outcomes.txt");
    let mut labs = FLAVOURS.map(|flavour| Lab::new(Host::new(flavour)));
    if std::env::var_os("SKEP_BLESS").is_some_and(|value| value == "1") {
        let lines = (0..LINES).map(|line| outcomes(&mut labs, line) + "\n");
        std::fs::write(&path, lines.collect::<String>()).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    let recorded: Vec<_> = recorded.lines().collect();
    assert_eq!(recorded.len(), LINES);
    for (line, expected) in recorded.iter().enumerate() {
        assert_eq!(outcomes(&mut labs, line), *expected, "{} leaves something else", std::env::consts::ARCH);
    }
}

/// The digest of one line's seeds; asserts that both engines agree.
fn outcomes(labs: &mut [Lab; FLAVOURS.len()], line: usize) -> String {
    let first = 1 + line as u64 * SEEDS;
    let (mut digest, mut runs) = (Digest::default(), 0);
    for seed in first..first + SEEDS {
        let mut source = Source::from_seed(seed);
        let flavour = source.below(FLAVOURS.len() as u32) as usize;
        let options = Options { statements: 2 + source.below(60), ..Options::all(FLAVOURS[flavour]) };
        let program = structured(&mut source, &options);
        let Ok(verified) = verified(&program) else { continue };
        let lab = &mut labs[flavour];
        lab.set_hints(&program);
        let interpreter = lab.interpreter(&verified).unwrap();
        let compiled = lab.compiled(&verified).unwrap();
        for input in 0..INPUTS {
            let interpreted = lab.interpret(&interpreter, input);
            let executed = lab.execute(&compiled, input);
            if let Err(text) = difference("the interpreter", &interpreted, "compiled code", &executed) {
                panic!("seed {seed}, input {input}: {text}\n{program}");
            }
            digest.add_outcome(&executed);
            runs += 1;
        }
    }
    let mut text = format!("seeds {first} to {}: {runs} runs, ", first + SEEDS - 1);
    write!(text, "{:016x}", digest.0).expect("writing to a string cannot fail");
    text
}

/// The 64-bit FNV-1a hash.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add_outcome(&mut self, (r0, state): &Outcome) {
        self.add(&r0.to_le_bytes());
        self.add(&state.memory);
        for number in [state.packet.0, state.packet.1, state.tail_calls.into()] {
            self.add(&number.to_le_bytes());
        }
        for word in state.maps.iter().flatten() {
            self.add(&word.to_le_bytes());
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
