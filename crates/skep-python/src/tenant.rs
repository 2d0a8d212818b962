//! Tenants: accounts of what their modules take, with limits.

use crate::released::Released;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use skep::{Quota, Resource};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An account of what modules take.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct Tenant(pub(crate) Released<Arc<skep::Tenant>>);

const RESOURCES: [(&str, Resource); 4] = [
    ("map_memory", Resource::MapMemory),
    ("maps", Resource::Maps),
    ("code_memory", Resource::CodeMemory),
    ("programs", Resource::Programs),
];

fn resource(name: &str) -> PyResult<Resource> {
    let found = RESOURCES.iter().find(|(known, _)| *known == name);
    found.map(|(_, resource)| *resource).ok_or_else(|| {
        let known = RESOURCES.map(|(known, _)| known).join(", ");
        PyValueError::new_err(format!("there is no limit '{name}'; there are: {known}"))
    })
}

#[pymethods]
impl Tenant {
    #[new]
    #[pyo3(signature = (name, *, map_memory=None, maps=None, code_memory=None, programs=None, max_walked=None))]
    fn new(
        name: &str,
        map_memory: Option<u64>,
        maps: Option<u64>,
        code_memory: Option<u64>,
        programs: Option<u64>,
        max_walked: Option<u64>,
    ) -> Self {
        let quota = Quota::new()
            .map_memory(map_memory.unwrap_or(u64::MAX))
            .maps(maps.unwrap_or(u64::MAX))
            .code_memory(code_memory.unwrap_or(u64::MAX))
            .programs(programs.unwrap_or(u64::MAX))
            .max_walked(max_walked.unwrap_or(u64::MAX));
        Self(Released::new(skep::Tenant::new(name, quota)))
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// What it uses of each resource: used, peak, limit (`None` without one), refused.
    fn usage(&self) -> BTreeMap<&'static str, (u64, u64, Option<u64>, u64)> {
        let of = |(name, resource): (&'static str, Resource)| {
            let usage = self.0.usage(resource);
            let limit = (usage.limit != u64::MAX).then_some(usage.limit);
            (name, (usage.used, usage.peak, limit, usage.refused))
        };
        RESOURCES.map(of).into_iter().collect()
    }

    /// Changes a limit.
    fn set_limit(&self, name: &str, limit: Option<u64>) -> PyResult<()> {
        self.0.set_limit(resource(name)?, limit.unwrap_or(u64::MAX));
        Ok(())
    }
}
