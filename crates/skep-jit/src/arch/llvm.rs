//! What LLVM says about machine code: one process for all the lines of a test.

/// The names under which it may be installed, the one that distributions give a certain version first.
const NAMES: [&str; 2] = ["llvm-mc-19", "llvm-mc"];

/// The lines of instructions that LLVM answers `input` with; `None` where it is not there and may be absent.
pub(crate) fn lines(what: &str, flags: &[&str], input: String) -> Option<Vec<String>> {
    let text = skep_testkit::answer(&format!("comparison of {what} with LLVM"), &NAMES, flags, &input)?;
    let instructions = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('.'));
    Some(instructions.map(str::to_owned).collect())
}

/// The bytes of each instruction in what `-show-encoding` prints.
pub(crate) fn encodings(lines: &[String]) -> Vec<Vec<u8>> {
    let byte = |text: &str| u8::from_str_radix(text.trim_start_matches("0x"), 16).expect("hexadecimal");
    let lists = lines.iter().filter_map(|line| line.split_once("encoding: [")?.1.split_once(']'));
    lists.map(|(list, _)| list.split(',').map(byte).collect()).collect()
}
