//! Code with names, for perf and GDB.
//!
//! ```text
//! cargo build -p skep-text --example seen
//! perf record -e cpu-clock -- target/debug/examples/seen perf-map;              perf report --stdio
//! perf record -e cpu-clock -k 1 -- target/debug/examples/seen jitdump .;        perf inject --jit -o jit.data
//!                                                                               perf report --stdio -i jit.data
//! gdb -ex 'set breakpoint pending on' -ex 'break hot_loop' -ex run -ex backtrace --args target/debug/examples/seen gdb
//! ```

use std::time::{Duration, Instant};

use skep_text::{Arena, Config, Error, Text};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let config = match arguments[..] {
        ["perf-map"] => Config::new().perf_map(true),
        ["jitdump", directory] => Config::new().jitdump(directory),
        ["gdb"] => Config::new().gdb(true),
        [] => Config::new(),
        _ => return Err("usage: seen [perf-map | jitdump DIRECTORY | gdb]".into()),
    };
    let arena = Arena::new(config)?;
    let hot = count_down(&arena, "hot_loop")?;
    let cold = count_down(&arena, "cold_loop")?;

    // What it costs: for new texts, and for texts that take the places of others.
    for what in ["new places", "reused places"] {
        let start = Instant::now();
        let texts = (0..1000).map(|_| count_down(&arena, "one_of_many")).collect::<Result<Vec<_>, _>>()?;
        println!("{} ns a text, {what}", start.elapsed().as_nanos() / texts.len() as u128);
        drop(texts);
        arena.flush()?;
    }

    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        run(&hot, 1 << 20);
        run(&cold, 1 << 16);
    }
    for missed in arena.missed() {
        eprintln!("{missed}");
    }
    Ok(())
}

/// A function that counts its argument down to 0.
fn count_down(arena: &Arena, name: &str) -> Result<Text, Error> {
    let code: &[u8] = if cfg!(target_arch = "x86_64") {
        &[0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3] // dec rdi; jnz -5; ret
    } else {
        &[0x00, 0x04, 0x00, 0xf1, 0xe1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6] // subs x0, x0, #1; b.ne -4; ret
    };
    let mut draft = arena.draft(code.len())?;
    draft.bytes_mut().copy_from_slice(code);
    // A name costs something to make up; do it only where somebody sees it.
    if arena.is_seen() {
        draft.set_name(name);
    }
    draft.finalize()
}

fn run(text: &Text, count: u64) {
    // SAFETY: the text was made by `count_down`, a function of this type, and lives until it has returned.
    let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn(u64)>(text.as_ptr()) };
    function(count);
}
