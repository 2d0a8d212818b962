//! Programs with tail calls and the results that skep and the running kernel must both return.

use super::{CB, PACKET, array, load_in_kernel};
use crate::Result;
use crate::kernel::Map;

/// Elements of the array.
const ELEMENTS: u32 = 4;

/// Programs, and what happens to the array between runs of the first one.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) programs: Vec<String>,
    pub(super) steps: Vec<Step>,
}

/// One step of a case.
pub(super) enum Step {
    /// A program, by its index, is put into an element.
    Set(u32, usize),
    /// An element is emptied.
    Remove(u32),
    /// The first program is run, and must return that.
    Run(u32),
}

use Step::{Remove, Run, Set};

fn to(index: u32) -> String {
    format!("r2 = map[0] ll\nr3 = {index}\ncall 12\n")
}

fn returns(number: u32) -> String {
    format!("r0 = {number}\nexit")
}

/// Increments a word of the packet's control block, tail-calls those elements in turn, and returns the word.
fn counts(elements: &[u32]) -> String {
    let calls: String = elements.iter().map(|element| format!("r1 = r6\n{}", to(*element))).collect();
    format!(
        "r6 = r1\nr4 = *(u32 *)(r6 + {CB})\nw4 += 1\n*(u32 *)(r6 + {CB}) = r4\n{calls}r0 = *(u32 *)(r6 + {CB})\nexit"
    )
}

fn at(offset: u32) -> String {
    format!("r3 = *(u32 *)(r1 + {CB})\nw3 += {offset}\nr2 = map[0] ll\ncall 12\nr0 = 99\nexit")
}

/// All of them.
pub(super) fn all() -> Vec<Case> {
    let case = |name, programs: Vec<String>, steps| Case { name, programs, steps };
    vec![
        case(
            "elements are empty, filled, replaced, emptied and filled again",
            vec![format!("{}r0 = 7\nexit", to(1)), returns(5), returns(6)],
            vec![Run(7), Set(1, 1), Run(5), Set(1, 2), Run(6), Remove(1), Run(7), Set(1, 1), Run(5)],
        ),
        case("a chain has 33 calls", vec![counts(&[0])], vec![Set(0, 0), Run(34), Run(34)]),
        case(
            "two that call each other have 33 calls together",
            vec![counts(&[1]), counts(&[0])],
            vec![Set(0, 0), Set(1, 1), Run(34)],
        ),
        case("an empty element costs no count", vec![counts(&[3, 0])], vec![Set(0, 0), Run(34)]),
        case(
            "what is behind an exhausted count is done",
            vec![counts(&[0, 1]), returns(3)],
            vec![Set(0, 0), Set(1, 1), Run(34)],
        ),
        case(
            "the index is found at run time",
            vec![at(2), returns(12)],
            vec![Run(99), Set(2, 1), Run(12), Remove(2), Run(99)],
        ),
        case("an index beyond the end falls through", vec![at(ELEMENTS), returns(12)], vec![Run(99)]),
    ]
}

impl Case {
    /// Has the kernel run it.
    pub(super) fn ask_kernel(&self) -> Result<()> {
        let array = Map::new(&array(ELEMENTS))?;
        let load = |text: &String| load_in_kernel(text, &array);
        let programs = self.programs.iter().map(load).collect::<Result<Vec<_>>>()?;
        for step in &self.steps {
            match *step {
                Set(element, program) => array.install(element, &programs[program])?,
                Remove(element) => array.remove(element)?,
                Run(expected) => {
                    let (result, _) = programs[0].run(&PACKET, 1)?;
                    if result != expected {
                        return Err(format!("{result} in place of {expected}").into());
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tail::object;
    use skep::abi::SCHED_CLS;
    use skep::{Engine, Packet, Runtime};
    use std::sync::Arc;

    #[test]
    fn skep_returns_what_the_kernel_must() {
        for fixed_code in [false, true] {
            let mut options = skep::jit::Options::default();
            options.fixed_code = fixed_code;
            let runtime = Runtime::builder().compile(options).build().unwrap();
            for case in all() {
                let object = |text: &String| object(&SCHED_CLS, text, ELEMENTS).unwrap();
                let first = runtime.load(&object(&case.programs[0])).unwrap();
                let array = first.program_array("programs").unwrap();
                let load = |text: &String| {
                    let object = object(text);
                    let linker = runtime.linker(&object).map("programs", Arc::clone(array.map()));
                    linker.load().unwrap().programs()[0].clone()
                };
                let programs: Vec<_> = case.programs.iter().map(load).collect();
                for step in &case.steps {
                    match *step {
                        Set(element, program) => drop(array.set(element, &programs[program]).unwrap()),
                        Remove(element) => drop(array.remove(element).unwrap()),
                        Run(expected) => {
                            for engine in [Engine::Jit, Engine::Interpreter] {
                                let mut packet = Packet::new(&PACKET);
                                let result = programs[0].run_with(engine, &mut packet).unwrap();
                                assert_eq!(result, u64::from(expected), "{}, {engine:?}", case.name);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn few_programs_are_loaded() {
        let all: usize = all().iter().map(|case| case.programs.len()).sum();
        assert!(all <= 20, "{all}");
    }
}
