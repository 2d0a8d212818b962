//! Programs that work for their client: the context is bytes that both share, and helpers make system calls for it.

use super::errno;
use super::repeat::Runs;
use crate::context::Context;
use crate::helpers::client::{self, Memory};
use crate::program::Program;
use skep_btf::{Btf, Kind};
use skep_sys::{Client, Errno, RunAnswer, RunRequest};

pub(super) fn run(program: &Program, request: &RunRequest, runs: &mut Runs<'_>) -> Result<RunAnswer, Errno> {
    const MOST: usize = u16::MAX as usize;
    let unused = request.data.is_some()
        || request.repeat != 0
        || request.context_out
        || request.flags != 0
        || request.cpu != 0;
    if unused || request.batch_size != 0 {
        return Err(Errno::EINVAL);
    }
    let given = request.context.as_deref().unwrap_or_default();
    if given.len() > MOST {
        return Err(Errno::EINVAL);
    }
    let mut context = Context::of(program).map_err(|error| errno(&error))?;
    context.set_bytes(given).map_err(|error| errno(&error))?;
    let types = runs.types;
    let result = runs.once(|client| {
        let mut asked = Asked { client, types };
        client::during(&mut asked, || program.run_context(&mut context).map_err(|error| errno(&error)))
    })?;
    let left = context.bytes()[..given.len()].to_vec();
    let result = result as u32;
    Ok(RunAnswer { result, context: Some(left), context_goes_back: true, ..RunAnswer::default() })
}

/// A client whose program asks for something.
struct Asked<'a> {
    client: &'a mut dyn Client,
    types: Option<&'a Btf>,
}

impl client::Client for Asked<'_> {
    fn call(&mut self, command: u32, attributes: &[u8], memory: &Memory<'_>) -> i64 {
        let memory = |address: u64, into: &mut [u8]| {
            if memory(address, into) { Ok(()) } else { Err(Errno::EFAULT) }
        };
        self.client.call(command, attributes, &memory).unwrap_or_else(|Errno(number)| -i64::from(number))
    }

    fn close(&mut self, descriptor: i32) -> i64 {
        self.client.close(descriptor).map_or_else(|Errno(number)| -i64::from(number), |()| 0)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        self.client.read(address, into).is_ok()
    }

    fn find_type(&mut self, name: &[u8], kind: u32) -> i64 {
        let Some(types) = self.types else { return -i64::from(Errno::EINVAL.0) };
        let name = std::str::from_utf8(name).ok();
        let found = Kind::from_number(kind).zip(name).and_then(|(kind, name)| types.find(name, kind));
        found.map_or(-i64::from(Errno::ENOENT.0), i64::from)
    }
}
