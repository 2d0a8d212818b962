//! Tenants: on whose behalf things are loaded, and what all of that may take.

use crate::argument::{give, name, place, shared};
use crate::load::free;
use crate::options::{self, Options};
use crate::status::{Failure, guard};
use skep::{Quota, Resource, Tenant};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// A tenant's handle.
#[derive(Debug)]
pub struct Quotas(Arc<Tenant>);

/// `skep_quota`: limits; 0 for none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QuotaOptions {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Bytes of maps.
    pub map_memory: u64,
    /// Maps.
    pub maps: u64,
    /// Bytes of code.
    pub code_memory: u64,
    /// Programs.
    pub programs: u64,
    /// Instructions that the verifier walks for one program.
    pub max_walked: u64,
}

/// `skep_usage`: what a tenant has taken.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UsageInfo {
    /// Size of this structure in bytes.
    pub size: usize,
    /// How much it has now.
    pub used: u64,
    /// The most that it had.
    pub peak: u64,
    /// The limit.
    pub limit: u64,
    /// How often it was refused more.
    pub refused: u64,
}

// SAFETY: six words of numbers.
unsafe impl Options for QuotaOptions {
    const NAME: &'static str = "skep_quota";
}

// SAFETY: five words of numbers.
unsafe impl Options for UsageInfo {
    const NAME: &'static str = "skep_usage";
}

impl Quotas {
    /// Resources in the order of `enum skep_resource`.
    pub const RESOURCES: [&'static str; 4] =
        ["SKEP_MAP_MEMORY", "SKEP_MAPS", "SKEP_CODE_MEMORY", "SKEP_PROGRAMS"];

    pub(crate) fn tenant(&self) -> &Arc<Tenant> {
        &self.0
    }
}

fn resource(number: c_int) -> Result<Resource, Failure> {
    let all = [Resource::MapMemory, Resource::Maps, Resource::CodeMemory, Resource::Programs];
    let found = usize::try_from(number).ok().and_then(|at| all.get(at).copied());
    found.ok_or_else(|| Failure::argument(format!("{number} is no enum skep_resource")))
}

/// Makes a tenant.
///
/// # Safety
///
/// `called` is null or ends in a zero byte; `quota` is null or readable for the size that it gives; `tenant` is null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_tenant_new(
    called: *const c_char,
    quota: *const QuotaOptions,
    tenant: *mut *mut Quotas,
) -> c_int {
    guard(|| {
        let to = place(tenant, "skep_tenant_new: tenant")?;
        // SAFETY: the caller's promise.
        let (name, given) = unsafe { (name(called, "skep_tenant_new: name")?, options::read(quota)?) };
        let mut quota = Quota::new();
        if let Some(given) = given {
            let limit = |given: u64| if given == 0 { u64::MAX } else { given };
            quota = quota
                .map_memory(limit(given.map_memory))
                .maps(limit(given.maps))
                .code_memory(limit(given.code_memory))
                .programs(limit(given.programs))
                .max_walked(limit(given.max_walked));
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { give(to, Quotas(Tenant::new(name, quota))) };
        Ok(())
    })
}

/// What a tenant has taken of a resource.
///
/// # Safety
///
/// `tenant` is null or not freed; `usage` is null or writable for the size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_tenant_usage(tenant: *const Quotas, of: c_int, usage: *mut UsageInfo) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to both.
        unsafe {
            let found = shared(tenant, "skep_tenant_usage: tenant")?.0.usage(resource(of)?);
            let skep::Usage { used, peak, limit, refused, .. } = found;
            options::write(usage, UsageInfo { size: 0, used, peak, limit, refused })
        }
    })
}

/// Changes a limit.
///
/// # Safety
///
/// `tenant` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_tenant_set_limit(tenant: *const Quotas, of: c_int, limit: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { shared(tenant, "skep_tenant_set_limit: tenant")? }.0.set_limit(resource(of)?, limit);
        Ok(())
    })
}

/// Frees a tenant's handle. What it has loaded stays charged to it.
///
/// # Safety
///
/// `tenant` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_tenant_free(tenant: *mut Quotas) {
    // SAFETY: the caller's promise.
    unsafe { free(tenant) };
}
