//! What a host tells programs of the place where they are attached: results, cookies, system settings.

use skep::abi::ProgramType;
use skep::{Context, Engine, Object, Program, Runtime, Sysctl};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const E2BIG: i64 = -7;
const EINVAL: i64 = -22;

fn load(section: &str, text: &str) -> Program {
    let insns = skep::isa::assemble(text).unwrap();
    let object = Object::from_insns("told", ProgramType::from_name(section).unwrap(), insns);
    let runtime = Runtime::builder().privileged(true).build().unwrap();
    runtime.load(&object).unwrap_or_else(|error| panic!("{error}\n{text}")).programs()[0].clone()
}

/// The result in both engines, and the context that the second left.
fn run(program: &Program, fill: impl Fn(&mut Context)) -> (i64, Context) {
    let mut runs = ENGINES.map(|engine| {
        let mut context = Context::of(program).unwrap();
        fill(&mut context);
        (program.run_context_with(engine, &mut context).unwrap() as i64, Some(context))
    });
    assert_eq!(runs[0].0, runs[1].0);
    (runs[1].0, runs[1].1.take().unwrap())
}

#[test]
fn a_result_goes_from_the_host_to_programs_and_back() {
    let program = load(
        "cgroup_device",
        "call 186\nr0 <<= 32\nr0 s>>= 32\nif r0 s< 0 goto refused\nr0 = 1\nexit\nrefused: r0 = 0\nexit",
    );
    assert_eq!(run(&program, |context| context.set_retval(-13)).0, 0);
    assert_eq!(run(&program, |_| {}).0, 1);
    let program = load("cgroup_device", "r1 = -95\ncall 187\nr0 = 0\nexit");
    assert_eq!(run(&program, |context| context.set_retval(7)).1.retval(), -95);
}

#[test]
fn the_cookie_is_that_of_the_attachment() {
    let program = load("tracepoint", "call 174\nexit");
    assert_eq!(run(&program, |context| context.set_attach_cookie(u64::MAX - 1)).0, -2);
    assert_eq!(run(&program, |_| {}).0, 0);
}

/// The result of a helper on eight bytes of the stack, and those bytes.
fn text(helper: u32, len: u32, flags: u32, fill: impl Fn(&mut Context)) -> (i64, [u8; 8]) {
    let ask = |end: &str| {
        let text = format!(
            "*(u64 *)(r10 - 8) = -1\nr2 = r10\nr2 += -8\nr3 = {len}\nr4 = {flags}\ncall {helper}\n{end}\nexit"
        );
        text
    };
    // The type's results are 0 and 1, so the answer goes through a field that programs may write.
    let store = |value: &str| {
        ask(&format!("{value}\n*(u32 *)(r6 + 4) = r0\nr0 = 1")).replacen("*(u64", "r6 = r1\n*(u64", 1)
    };
    let answer = |value: &str| {
        let program = load("cgroup_sysctl", &store(value));
        run(&program, &fill).1.field("file_pos").unwrap() as u32
    };
    let low = answer("r0 = *(u32 *)(r10 - 8)").to_ne_bytes();
    let high = answer("r0 = *(u32 *)(r10 - 4)").to_ne_bytes();
    (i64::from(answer("r0 = r0") as i32), [low, high].concat().try_into().unwrap())
}

fn setting(context: &mut Context) {
    let current = Some(b"12\n".to_vec());
    context.set_sysctl(Sysctl { name: "net/a/tcp".into(), current, new: Some(b"7".to_vec()) });
}

#[test]
fn a_setting_has_a_name_and_two_values() {
    const NAME: u32 = 101;
    const CURRENT: u32 = 102;
    const NEW: u32 = 103;
    assert_eq!(text(NAME, 8, 0, setting), (E2BIG, *b"net/a/t\0"));
    assert_eq!(text(NAME, 8, 1, setting), (3, *b"tcp\0\0\0\0\0"));
    assert_eq!(text(NAME, 3, 1, setting), (E2BIG, *b"tc\0\xff\xff\xff\xff\xff"));
    assert_eq!(text(NAME, 8, 2, setting).0, EINVAL);
    assert_eq!(text(CURRENT, 4, 0, setting), (3, *b"12\n\0\xff\xff\xff\xff"));
    assert_eq!(text(CURRENT, 3, 0, setting).0, E2BIG);
    assert_eq!(text(NEW, 8, 0, setting), (1, *b"7\0\0\0\0\0\0\0"));
    for helper in [NAME, CURRENT, NEW] {
        assert_eq!(text(helper, 8, 0, |_| {}), (EINVAL, [0; 8]), "{helper}: nobody said");
    }
}

#[test]
fn a_new_value_replaces_the_one_that_is_being_written() {
    let set = |len: u32| {
        format!("r2 = r10\nr2 += -8\n*(u64 *)(r10 - 8) = 0x41424344\nr3 = {len}\ncall 104\nr0 >>= 63\nexit")
    };
    let program = load("cgroup_sysctl", &set(4));
    let (failed, context) = run(&program, setting);
    assert_eq!((failed, context.sysctl().unwrap().new.as_deref()), (0, Some(&b"DCBA"[..])));
    let (failed, context) = run(&program, |context| context.set_sysctl(Sysctl::default()));
    assert_eq!((failed, &context.sysctl().unwrap().new), (1, &None), "it is being read");
}
