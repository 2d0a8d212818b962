//! The `solana-sbpf` crate's JIT, as its users run it (every access translated and checked, instructions
//! counted), and with all of that off.

use super::{Engine, Prepared, bytes, placed};
use crate::arch;
use crate::programs::Program;
use solana_sbpf::ebpf::{MM_INPUT_START, MM_REGION_SIZE, MM_STACK_START};
use solana_sbpf::elf::Executable;
use solana_sbpf::error::ProgramResult;
use solana_sbpf::memory_region::{MemoryMapping, MemoryRegion};
use solana_sbpf::program::{BuiltinProgram, FunctionRegistry, SBPFVersion};
use solana_sbpf::vm::{Config, ContextObject, EbpfVm, ExecutionMode};
use std::ptr::NonNull;
use std::sync::Arc;

/// The version whose calls and 32-bit jumps are encoded as in RFC 9669.
const VERSION: SBPFVersion = SBPFVersion::V4;

pub(crate) struct Sbpf {
    /// Whether accesses are checked and instructions counted.
    pub(crate) checked: bool,
}

struct Ready {
    executable: Executable<Host>,
    vm: EbpfVm<'static, Host>,
    registers: [u64; 12],
    _memory: Vec<u8>,
    _stack: Vec<u8>,
}

/// What the machine asks of its host: an instruction meter and the memory.
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

impl Engine for Sbpf {
    fn name(&self) -> &'static str {
        if self.checked { "sbpf" } else { "sbpf-unchecked" }
    }

    fn prepare(&self, program: &'static Program, placement: usize) -> Result<Box<dyn Prepared>, String> {
        if !program.plain {
            return Err("it has no maps, and helpers of another kind".into());
        }
        let config = Config {
            enable_address_translation: self.checked,
            enable_instruction_meter: self.checked,
            enable_stack_frame_gaps: false,
            noop_instruction_rate: 0,
            sanitize_user_provided_values: false,
            enabled_sbpf_versions: VERSION..=VERSION,
            ..Config::default()
        };
        let code = bytes(&placed(program, placement)?)?;
        let loader = Arc::new(BuiltinProgram::new_loader(config.clone()));
        let registry = FunctionRegistry::default();
        let executable = Executable::<Host>::from_text_bytes(&code, Arc::clone(&loader), VERSION, registry)
            .map_err(|error| error.to_string())?;
        arch::compile_by_sbpf(&executable)?;

        let mut memory = program.fresh_memory();
        let mut stack = vec![0u8; config.stack_size()];
        let regions = vec![
            MemoryRegion::new(&raw const code[..0], 0),
            MemoryRegion::new(&raw const code[..0], MM_REGION_SIZE),
            MemoryRegion::new(&raw mut stack[..], MM_STACK_START),
            MemoryRegion::new(&raw const code[..0], MM_STACK_START + MM_REGION_SIZE),
            MemoryRegion::new(&raw mut memory[..], MM_INPUT_START),
        ];
        // SAFETY: memory and stack live in `Ready` beside the machine, and their buffers never move.
        let mapping =
            unsafe { MemoryMapping::new(regions, &config, VERSION) }.map_err(|error| error.to_string())?;
        let host = Box::leak(Box::new(Host { remaining: u64::MAX / 2, mapping }));
        let mut vm = EbpfVm::new(loader, VERSION, host, stack.len());
        let mut registers = vm.registers;
        if self.checked {
            registers[1] = MM_INPUT_START;
        } else {
            registers[1] = memory.as_mut_ptr() as u64;
            registers[10] = stack.as_mut_ptr() as u64 + config.stack_frame_size as u64;
        }
        registers[2] = memory.len() as u64;
        vm.registers = registers;
        Ok(Box::new(Ready { executable, vm, registers, _memory: memory, _stack: stack }))
    }
}

impl Prepared for Ready {
    fn run(&mut self) -> u64 {
        self.vm.registers = self.registers;
        let (_, result) = self.vm.execute_program(&self.executable, &mut ExecutionMode::Jit, &mut []);
        match result {
            ProgramResult::Ok(value) => value,
            // No program returns this: the caller compares results and reports the program as failed.
            ProgramResult::Err(_) => u64::MAX,
        }
    }
}
