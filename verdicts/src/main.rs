//! Asks Linux for the verdicts in `*.verdicts` files: `cargo xtask verdicts`.
#![forbid(unsafe_code)]

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use skep_btf::Btf;
use skep_verdicts::{
    Answer, Entry, Run, Verdict, answers, calls, entries, kernel_names, lifetimes, operation_requests,
    operations, probe, request, sample, types, vm, with_answers, with_operation_answers, with_verdicts,
};

/// The last number that a helper has: Linux adds functions of the kernel instead since 6.2.
const LAST_HELPER: u32 = 211;

const USAGE: &str = "\
usage: verdicts (--vm VMLINUZ | --run COMMAND) [--print] [-v | -vv] FILE.verdicts...
       verdicts --types BTF --out FILE.btf FILE.verdicts...
       verdicts --types BTF --lifetimes COUNT --seed SEED --out FILE.verdicts
       verdicts --sample COUNT --out SAMPLE.verdicts FILE.verdicts
       verdicts --vm VMLINUZ --maps FILE.maps
       verdicts --vm VMLINUZ --calls FILE.calls
       verdicts --vm VMLINUZ --programs FILE... [-- ARGUMENT...]
       verdicts --probe KFUNCS.tsv --vm VMLINUZ --out TABLE.tsv

Asks a kernel for its verdict on every program of the files and rewrites the `linux:` and
`answer:` lines.

  --vm VMLINUZ     runs that kernel in a virtual machine (needs qemu-system-x86_64 and cc)
  --run COMMAND    runs COMMAND, which reads requests from standard input and prints answers
  --print          prints the verdicts without changing the files
  --types BTF      asks no kernel, but writes to --out the kernel types (from BTF, such as /sys/kernel/btf/vmlinux) that
                   the programs of all these files name, for tests without a kernel
  --lifetimes COUNT  writes COUNT random programs about lifetimes, from --seed (0), with member offsets from --types
  --sample COUNT   writes a selection: COUNT programs for each reason of a refusal, and COUNT accepted for each event
  --probe KFUNCS.tsv  writes what that kernel lets each type of program call: every helper, and the kernel functions in
                   the file's first column
  --maps FILE.maps  does the operations on maps in that file, and writes their answers into it
  --calls FILE.calls  makes the system calls in that file, and writes their answers into it
  --programs       runs the programs FILE in the machine, with the ARGUMENTs, prints what they print, and fails if one does
  -v, -vv          prints logs too: whole logs, or with the state after each instruction
";

/// The command.
#[derive(Default)]
struct Options {
    kernel: Option<PathBuf>,
    command: Option<String>,
    print: bool,
    level: u32,
    types: Option<PathBuf>,
    out: Option<PathBuf>,
    lifetimes: Option<u64>,
    sample: Option<usize>,
    probe: Option<PathBuf>,
    maps: Option<PathBuf>,
    calls: Option<PathBuf>,
    programs: bool,
    arguments: Vec<String>,
    seed: u64,
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("verdicts: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--vm" => options.kernel = Some(words.next()?.into()),
            "--run" => options.command = Some(words.next()?),
            "--types" => options.types = Some(words.next()?.into()),
            "--out" => options.out = Some(words.next()?.into()),
            "--lifetimes" => options.lifetimes = Some(words.next()?.parse().ok()?),
            "--sample" => options.sample = Some(words.next()?.parse().ok()?),
            "--maps" => options.maps = Some(words.next()?.into()),
            "--calls" => options.calls = Some(words.next()?.into()),
            "--probe" => options.probe = Some(words.next()?.into()),
            "--seed" => options.seed = words.next()?.parse().ok()?,
            "--print" => options.print = true,
            "--programs" => options.programs = true,
            "--" if options.programs => options.arguments.extend(words.by_ref()),
            "-v" => options.level = 1,
            "-vv" => options.level = 2,
            _ if word.starts_with('-') => return None,
            _ => options.files.push(word.into()),
        }
    }
    if options.programs {
        return (options.kernel.is_some() && !options.files.is_empty()).then_some(options);
    }
    if options.maps.is_some() || options.calls.is_some() {
        return (options.kernel.is_some() && options.out.is_none() && options.files.is_empty())
            .then_some(options);
    }
    if options.probe.is_some() {
        return (options.kernel.is_some() && options.out.is_some() && options.files.is_empty())
            .then_some(options);
    }
    let made = options.types.is_some() || options.sample.is_some();
    let ways = [
        options.kernel.is_some(),
        options.command.is_some(),
        options.types.is_some(),
        options.sample.is_some(),
    ];
    let one_way = ways.iter().filter(|way| **way).count() == 1 && made == options.out.is_some();
    let made_from_nothing = options.lifetimes.is_some();
    let files = if made_from_nothing { options.types.is_some() } else { !options.files.is_empty() };
    (one_way && files && made_from_nothing <= options.files.is_empty()).then_some(options)
}

/// Returns whether every question was answered.
fn run(options: &Options) -> Result<bool, String> {
    if let (Some(from), Some(to), Some(count)) = (&options.types, &options.out, options.lifetimes) {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", from.display());
        let types =
            Btf::parse(fs::read(from).map_err(|error| named(&error))?).map_err(|error| named(&error))?;
        let text = lifetimes(&types, options.seed, count)?;
        return written(to, &text);
    }
    if let (Some(most), Some(to), [from]) = (options.sample, &options.out, &options.files[..]) {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", from.display());
        let text = fs::read_to_string(from).map_err(|error| named(&error))?;
        return written(to, &sample(&text, most).map_err(|error| named(&error))?);
    }
    if let (Some(from), Some(to)) = (&options.types, &options.out) {
        return write_types(from, to, &options.files);
    }
    if let (Some(functions), Some(kernel), Some(to)) = (&options.probe, &options.kernel, &options.out) {
        let text =
            fs::read_to_string(functions).map_err(|error| format!("{}: {error}", functions.display()))?;
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<String> = rows.filter_map(|line| Some(line.split('\t').next()?.to_owned())).collect();
        let output = vm::ask(kernel, &probe::questions(LAST_HELPER, &names)?)?;
        return written(to, &probe::table(&output)?);
    }
    if let (Some(path), Some(kernel)) = (&options.maps, &options.kernel) {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        let maps = operations(&text).map_err(|error| named(&error))?;
        let output = vm::ask(kernel, &operation_requests(&maps))?;
        return written(path, &with_operation_answers(&text, &maps, &output).map_err(|error| named(&error))?);
    }
    if let (Some(path), Some(kernel)) = (&options.calls, &options.kernel) {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        let output = vm::call(kernel, &calls::script(&text).map_err(|error| named(&error))?)?;
        return written(path, &calls::with_call_answers(&text, &output).map_err(|error| named(&error))?);
    }
    if let (Some(kernel), true) = (&options.kernel, options.programs) {
        let output = vm::programs(kernel, &options.files, &options.arguments)?;
        print!("{output}");
        let ended = output.lines().filter(|line| line.trim().ends_with(" ended with 0")).count();
        return Ok(ended == options.files.len());
    }
    let mut files = Vec::new();
    let mut requests = String::new();
    for path in &options.files {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        let entries = entries(&text).map_err(|error| named(&error))?;
        let mut asked = Vec::new();
        for entry in entries {
            let lines = if options.level == 0 { 6 } else { 0 };
            if let Some(request) =
                request(&entry, lines, options.level.max(1)).map_err(|error| named(&error))?
            {
                requests.push_str(&request);
                asked.push(entry);
            }
        }
        files.push((path, text, asked));
    }
    let output = match (&options.kernel, &options.command) {
        (Some(kernel), _) => vm::ask(kernel, &requests)?,
        (None, Some(command)) => piped(command, &requests)?,
        (None, None) => return Err("no kernel given: use --vm FILE or --run COMMAND".to_owned()),
    };
    let mut answers = answers(&output).into_iter();
    let mut complete = true;
    for (path, text, asked) in files {
        let mut verdicts = HashMap::new();
        let mut runs = HashMap::new();
        for entry in &asked {
            match verdict(entry, answers.next()) {
                Ok((verdict, answer)) => {
                    show(options, entry, &verdict, &answer);
                    if let (Some(run), Some(words)) = (Run::of(entry)?, &answer.run) {
                        runs.insert(entry.name.clone(), run.recorded(entry, words)?);
                    }
                    verdicts.insert(entry.name.clone(), verdict);
                }
                Err(reason) => {
                    eprintln!("{}:{}: {}: {reason}", path.display(), entry.line, entry.name);
                    complete = false;
                }
            }
        }
        let anew = with_answers(&with_verdicts(&text, &verdicts), &runs);
        if !options.print && anew != text {
            fs::write(path, anew).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(complete)
}

fn written(to: &Path, text: &str) -> Result<bool, String> {
    fs::write(to, text).map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(true)
}

/// Names of types in a file's comments.
const TYPES: &str = "# types:";

fn write_types(from: &Path, to: &Path, files: &[PathBuf]) -> Result<bool, String> {
    let mut names = BTreeSet::new();
    for path in files {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        for entry in entries(&text).map_err(|error| named(&error))? {
            names.extend(kernel_names(&entry).map_err(|error| named(&error))?);
        }
        let said = text.lines().filter_map(|line| line.strip_prefix(TYPES));
        names.extend(said.flat_map(str::split_whitespace).map(str::to_owned));
    }
    let whole = fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    let part = types::part(&whole, &names)?;
    fs::write(to, part).map_err(|error| format!("{}: {error}", to.display()))?;
    Ok(true)
}

fn verdict(entry: &Entry, answer: Option<Answer>) -> Result<(Verdict, Answer), String> {
    let answer = answer.ok_or("no answer")?;
    match answer.name == entry.name.replace(' ', "_") {
        true => Ok((answer.verdict()?, answer)),
        false => Err(format!("the answer is for {}", answer.name)),
    }
}

fn show(options: &Options, entry: &Entry, verdict: &Verdict, answer: &Answer) {
    if options.print || options.level > 0 {
        let walked = answer.walked().map_or(String::new(), |walked| format!("  ({walked} walked)"));
        let changed = match &entry.linux {
            Some(old) if old.agrees_with(verdict) => "",
            Some(_) => "  (not as the file says)",
            None => "  (new)",
        };
        println!("{}: {verdict}{walked}{changed}", entry.name);
    }
    if options.level > 0 {
        answer.log.iter().for_each(|line| println!("    {line}"));
    }
}

/// The output of a command for that input.
fn piped(command: &str, text: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{command}: {error}");
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let input = child.stdin.take();
    let text = text.to_owned();
    let writer = thread::spawn(move || input.map_or(Ok(()), |mut input| input.write_all(text.as_bytes())));
    let output = child.wait_with_output().map_err(failed)?;
    // If the command ends before it has read everything, answers are missing.
    let _ = writer.join();
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
