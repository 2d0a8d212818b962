//! Test runs: `BPF_PROG_TEST_RUN`.

use crate::attr::{Attr, TestRun};
use crate::caller::Caller;
use crate::engine::{Engine, RunRequest, RunsOn};
use crate::errno::Errno;
use crate::from_program::RunClient;
use crate::system::System;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::offset_of;

/// The most bytes of a packet or a context.
const MOST: u32 = 16 << 20;

impl<E: Engine> System<E> {
    pub(crate) fn test_run(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let run: TestRun = attr.get_padded(offset_of!(TestRun, unused))?;
        let program = caller.handle(run.prog_fd)?.program()?;
        // A size and its address come together.
        let unpaired = |size: u32, address: u64| (size == 0) != (address == 0);
        if unpaired(run.ctx_size_in, run.ctx_in) || unpaired(run.ctx_size_out, run.ctx_out) {
            return Err(Errno::EINVAL);
        }
        let on = self.engine().runs_on(program.program());
        match on {
            RunsOn::Nothing => return Err(Errno::ENOTSUPP),
            RunsOn::Context if run.data_in != 0 || run.data_out != 0 => {
                return Err(Errno::EINVAL);
            }
            RunsOn::ContextAlone if run.data_size_in != 0 || run.data_size_out != 0 => {
                return Err(Errno::EINVAL);
            }
            RunsOn::ContextAlone if run.data_in != 0 || run.data_out != 0 => return Err(Errno::EINVAL),
            _ => {}
        }
        if run.data_size_in > MOST || run.ctx_size_in > MOST {
            return Err(Errno::E2BIG);
        }
        let mut input = |address: u64, size: u32| -> Result<Option<Vec<u8>>, Errno> {
            if address == 0 && size == 0 {
                return Ok(None);
            }
            let mut bytes = vec![0; size as usize];
            caller.read(address, &mut bytes)?;
            Ok(Some(bytes))
        };
        let request = RunRequest {
            data: if on == RunsOn::Packet { input(run.data_in, run.data_size_in)? } else { None },
            context: input(run.ctx_in, run.ctx_size_in)?,
            context_out: run.ctx_size_out != 0,
            repeat: run.repeat,
            flags: run.flags,
            cpu: run.cpu,
            batch_size: run.batch_size,
        };
        self.settle_sockets(caller);
        let mut client = RunClient::new(self, caller);
        let answer = self.engine().run(program.program(), &request, &mut client)?;
        client.finish()?;
        if let (true, Some(context)) = (answer.context_goes_back && run.ctx_in != 0, &answer.context) {
            caller.write(run.ctx_in, context)?;
        }
        // What does not fit is cut, and the caller learns the whole size.
        let mut output = |address: u64, room: u32, at: usize, bytes: Option<&[u8]>| -> Result<bool, Errno> {
            let Some(bytes) = bytes else { return Ok(true) };
            let fits = room == 0 || bytes.len() <= room as usize;
            if address != 0 {
                let now = if room == 0 { bytes.len() } else { bytes.len().min(room as usize) };
                caller.write(address, &bytes[..now])?;
            }
            attr.put(caller, at, &(bytes.len() as u32).to_ne_bytes())?;
            Ok(fits || address == 0)
        };
        let data_fits = output(
            run.data_out,
            run.data_size_out,
            offset_of!(TestRun, data_size_out),
            answer.data.as_deref(),
        )?;
        let context = answer.context.as_deref().filter(|_| run.ctx_size_out != 0);
        let context_fits = output(run.ctx_out, run.ctx_size_out, offset_of!(TestRun, ctx_size_out), context)?;
        attr.put(caller, offset_of!(TestRun, retval), &answer.result.to_ne_bytes())?;
        attr.put(caller, offset_of!(TestRun, duration), &answer.duration.to_ne_bytes())?;
        if data_fits && context_fits { Ok(0) } else { Err(Errno::ENOSPC) }
    }
}
