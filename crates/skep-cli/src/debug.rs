//! `skep debug`: a session about a recorded run, on a terminal or from a script on standard input.

use crate::failure::Failure;
use crate::object::ProgramArgs;
use crate::output;
use skep::{Budget, Packet, Runtime};
use skep_debug::{Answer, Recording, Session};
use std::io::{BufRead, IsTerminal};

/// Units of work after which a run ends, so that a program that does not end is recorded too.
const BUDGET: u64 = 10_000_000;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  skep debug firewall.bpf.o --packet 'eth()/ip4()/tcp(dport=23)'
  printf 'break 358\\ncontinue\\nbacktrace\\n' | skep debug firewall.bpf.o --packet 'eth()/ip4()/tcp(dport=23)'

Commands are those of gdb, backwards too: break, continue, reverse-continue, step, next, finish, print; help lists them.
The run is recorded in the interpreter to its end before the session begins.")]
pub(crate) struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    /// The packet as text.
    #[arg(long, value_name = "TEXT", required_unless_present = "hex")]
    packet: Option<String>,
    /// The packet in hexadecimal digits.
    #[arg(long, value_name = "DIGITS", conflicts_with = "packet")]
    hex: Option<String>,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let text = match (&args.packet, &args.hex) {
        (Some(text), _) => text.clone(),
        (None, hex) => format!("hex({})", hex.as_deref().unwrap_or_default()),
    };
    let bytes = skep_frames::build(&text).map_err(|error| Failure::Usage(format!("the packet: {error}")))?;
    let object = args.program.open()?;
    let name = args.program.choose(&object)?;
    let options = args.program.options();
    let log = |_: &str, line: &str| output::complaint(&format!("{line}\n"));
    let runtime = Runtime::builder().cpus(1).budget(Budget::units(BUDGET)).log(log).build()?;
    let mut linker = runtime.linker(&object).only(&name);
    if let Some(kind) = options.program_type {
        linker = linker.program_type(kind);
    }
    let module = linker.load()?;
    let mut packet = Packet::new(&bytes);
    let recording = Recording::of(&module.programs()[0], &mut packet)?;
    let mut session = Session::new(&recording);
    let is_terminal = std::io::stdin().is_terminal();
    output::text(&format!("{}\n", session.place()))?;
    let prompt = || if is_terminal { output::prompt("(skep) ") } else { Ok(()) };
    prompt()?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::Refused(format!("cannot read standard input: {error}")))?;
        match session.command(&line) {
            Answer::Quit => return Ok(()),
            Answer::Text(text) if text.is_empty() => {}
            Answer::Text(text) => output::text(&format!("{text}\n"))?,
            Answer::Error(text) => output::text(&format!("error: {text}\n"))?,
        }
        prompt()?;
    }
    Ok(())
}
