//! Other crates' engines.

use super::{Run, constant, placed};
use crate::programs::Program;
use crate::{Result, arch};
use rbpf::EbpfVmRaw;
use skep::isa::{Reg, encode_bytes};
use solana_sbpf::ebpf::{MM_INPUT_START, MM_REGION_SIZE, MM_STACK_START};
use solana_sbpf::elf::Executable;
use solana_sbpf::error::ProgramResult;
use solana_sbpf::memory_region::{MemoryMapping, MemoryRegion};
use solana_sbpf::program::{BuiltinProgram, FunctionRegistry, SBPFVersion};
use solana_sbpf::vm::{Config, ContextObject, EbpfVm, ExecutionMode};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Refuses programs for engines that can run only plain ones.
fn only_plain(program: &Program) -> Result<()> {
    if program.plain { Ok(()) } else { Err("it has no maps, and helpers of another kind".into()) }
}

/// The `rbpf` crate's JIT. Its verifier checks opcodes only.
pub(super) fn rbpf(program: &'static Program, placement: usize) -> Result<Run> {
    only_plain(program)?;
    // The crate's lifetimes tie program and memory to the machine; a benchmark process can leak both.
    // It passes the memory in `r1` but not its length: one more instruction sets that.
    let mut insns = placed(program, placement)?;
    insns.insert(0, constant(Reg::R2, program.bytes as i32));
    let memory = program.fresh_memory().leak();
    let mut vm = EbpfVmRaw::new(Some(encode_bytes(&insns)?.leak()))?;
    arch::compile_by_rbpf(&mut vm)?;
    Ok(Box::new(move || {
        let memory: *mut [u8] = memory;
        // SAFETY: the program is one that skep's verifier accepted for memory of this length; the memory is leaked,
        // and only this closure has it.
        unsafe { vm.execute_program_jit(&mut *memory) }.expect("the program was compiled")
    }))
}

/// Times rbpf's check and compilation; `None` where it compiles for another architecture, or panics because its buffer
/// is too small for the code.
pub(crate) fn rbpf_load(code: &[u8]) -> Result<Option<Duration>> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let compiled = std::panic::catch_unwind(|| {
        Ok::<_, std::io::Error>(arch::compile_by_rbpf(&mut EbpfVmRaw::new(Some(code))?))
    });
    let elapsed = started.elapsed();
    std::panic::set_hook(hook);
    match compiled {
        Ok(compiled) => Ok(compiled?.ok().map(|()| elapsed)),
        Err(_) => Ok(None),
    }
}

/// The version whose calls and 32-bit jumps are encoded as in RFC 9669.
const VERSION: SBPFVersion = SBPFVersion::V4;

/// What the machine needs of its host: an instruction meter and the memory.
struct Host {
    remaining: u64,
    mapping: MemoryMapping,
}

impl ContextObject for Host {
    fn consume(&mut self, amount: u64) {
        self.remaining = self.remaining.saturating_sub(amount);
    }

    fn get_remaining(&self) -> u64 {
        self.remaining
    }

    fn active_mapping_ptr(&mut self) -> NonNull<MemoryMapping> {
        NonNull::from(&mut self.mapping)
    }
}

/// The `solana-sbpf` crate's JIT. `checked`: as its users run it, where accesses are translated and checked, and
/// instructions counted.
pub(super) fn sbpf(program: &'static Program, placement: usize, checked: bool) -> Result<Run> {
    only_plain(program)?;
    let config = Config {
        enable_address_translation: checked,
        enable_instruction_meter: checked,
        enable_stack_frame_gaps: false,
        noop_instruction_rate: 0,
        sanitize_user_provided_values: false,
        enabled_sbpf_versions: VERSION..=VERSION,
        ..Config::default()
    };
    let code = encode_bytes(&placed(program, placement)?)?;
    let loader = Arc::new(BuiltinProgram::new_loader(config.clone()));
    let registry = FunctionRegistry::default();
    let executable = Executable::<Host>::from_text_bytes(&code, Arc::clone(&loader), VERSION, registry)
        .map_err(|error| error.to_string())?;
    arch::compile_by_sbpf(&executable)?;

    // Both live as long as the machine: a benchmark process can leak them.
    let memory = program.fresh_memory().leak();
    let stack = vec![0_u8; config.stack_size()].leak();
    let regions = vec![
        MemoryRegion::new(&raw const code[..0], 0),
        MemoryRegion::new(&raw const code[..0], MM_REGION_SIZE),
        MemoryRegion::new(&raw mut stack[..], MM_STACK_START),
        MemoryRegion::new(&raw const code[..0], MM_STACK_START + MM_REGION_SIZE),
        MemoryRegion::new(&raw mut memory[..], MM_INPUT_START),
    ];
    // SAFETY: memory and stack are leaked, and nothing but the machine uses them; the other regions are empty.
    let mapping =
        unsafe { MemoryMapping::new(regions, &config, VERSION) }.map_err(|error| error.to_string())?;
    let host = Box::leak(Box::new(Host { remaining: u64::MAX / 2, mapping }));
    let mut vm = EbpfVm::new(loader, VERSION, host, stack.len());
    let mut registers = vm.registers;
    if checked {
        registers[1] = MM_INPUT_START;
    } else {
        registers[1] = memory.as_mut_ptr() as u64;
        registers[10] = stack.as_mut_ptr() as u64 + config.stack_frame_size as u64;
    }
    registers[2] = memory.len() as u64;
    Ok(Box::new(move || {
        vm.registers = registers;
        let (_, result) = vm.execute_program(&executable, &mut ExecutionMode::Jit, &mut []);
        match result {
            ProgramResult::Ok(value) => value,
            // No program returns this: the caller compares results and reports the program as failed.
            ProgramResult::Err(_) => u64::MAX,
        }
    }))
}
