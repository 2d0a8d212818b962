//! `skep debug`: a session about a recorded run, on a terminal or from a script on standard input.

use crate::failure::Failure;
use crate::object::{self, ProgramArgs};
use crate::output;
use skep::abi::ProgramType;
use skep::{Budget, Object, Packet, Runtime};
use skep_debug::{Answer, Launch, Recording, Session};
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
    let object = args.program.open()?;
    let name = args.program.choose(&object)?;
    let recording = recorded(&object, &name, args.program.options().program_type, &text)?;
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

/// Records a run of a program on a packet as text.
fn recorded(
    object: &Object,
    name: &str,
    kind: Option<&'static ProgramType>,
    packet: &str,
) -> Result<Recording, Failure> {
    let bytes = skep_frames::build(packet).map_err(|error| Failure::Usage(format!("the packet: {error}")))?;
    let log = |_: &str, line: &str| output::complaint(&format!("{line}\n"));
    let runtime = Runtime::builder().cpus(1).budget(Budget::units(BUDGET)).log(log).build()?;
    let mut linker = runtime.linker(object).only(name);
    if let Some(kind) = kind {
        linker = linker.program_type(kind);
    }
    let module = linker.load()?;
    Ok(Recording::of(&module.programs()[0], &mut Packet::new(&bytes))?)
}

/// `skep dap`: the same for editors, by the Debug Adapter Protocol on standard input and output.
pub(crate) fn dap() -> Result<(), Failure> {
    let record = |launch: &Launch| {
        let said = |failure: Failure| failure.to_string();
        let object = object::open(&launch.object).map_err(|error| error.to_string())?;
        let wanted = Some(&*launch.program).filter(|name| !name.is_empty());
        let name = object::choose(&object, wanted).map_err(said)?;
        recorded(&object, &name, None, &launch.packet).map_err(said)
    };
    let served = skep_debug::serve(&mut std::io::stdin().lock(), &mut std::io::stdout().lock(), &record);
    served.map_err(|error| Failure::Refused(error.to_string()))
}
