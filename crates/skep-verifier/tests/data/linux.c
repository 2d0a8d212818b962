/* What corpus/objects.corpus needs of the types of Linux 6.12 on x86-64, at the offsets that they have there.
 * `linux.btf` is made of it; see the rule in README.md. */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef _Bool bool;

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define GAP(bytes) char CAT(gap, __COUNTER__)[bytes]

struct cpumask { unsigned long bits[128]; };
struct bpf_cpumask { struct cpumask cpumask; u32 usage; };
struct inode { u16 i_mode; GAP(622); };
struct path { void *mnt, *dentry; };
struct file {
	GAP(40);
	struct inode *f_inode;          /* 40 */
	u32 f_flags;                    /* 48 */
	GAP(12);
	struct path f_path;             /* 64 */
	GAP(104);
};
struct mm_struct { GAP(1160); struct file *exe_file; GAP(176); };
struct css_set { GAP(128); void *dfl_cgrp; GAP(456); };
struct task_struct {
	GAP(32);
	void *stack;                    /* 32 */
	GAP(952);
	const struct cpumask *cpus_ptr; /* 992 */
	GAP(1080);
	unsigned long rcu_tasks_nvcsw;  /* 2080 */
	GAP(216);
	struct mm_struct *mm;           /* 2304 */
	GAP(48);
	unsigned sched_remote_wakeup : 1, sched_rt_mutex : 1; /* 2360 */
	GAP(68);
	s32 pid, tgid;                  /* 2432 */
	GAP(8);
	struct task_struct *real_parent, *parent; /* 2448 */
	GAP(512);
	char comm[16];                  /* 2976 */
	GAP(592);
	struct css_set *cgroups;        /* 3584 */
	GAP(6200);
};
struct sock_common { GAP(136); };
struct sock { struct sock_common __sk_common; GAP(388); u32 sk_mark; GAP(248); };
struct tcp_sock { struct sock sk; u32 more; };
struct msghdr { void *msg_name; };
struct sk_buff { GAP(112); u32 len; GAP(116); };
struct xdp_buff { void *data; GAP(40); u32 frame_sz; u32 flags; };
struct xdp_md { u32 data; };
struct __sk_buff { u32 len; };
struct nf_hook_state { u8 hook; };
struct bpf_nf_ctx { const struct nf_hook_state *state; struct sk_buff *skb; };
struct pt_regs { unsigned long r15; };
struct seq_file { char *buf; };
struct bpf_iter_meta { struct seq_file *seq; };
struct bpf_map { u32 id; };
struct rq { u32 lock, nr_running; };
struct bpf_dynptr { u64 __opaque[2]; };
struct bpf_iter_num { u64 __opaque[1]; };
struct bpf_iter_task { u64 __opaque[3]; };

#define FUNC(...) __VA_ARGS__ __attribute__((used, noinline))
FUNC(long) vfs_read(struct file *file, char *buf, u64 count, long *pos) { return 0; }
FUNC(int) security_file_open(struct file *file) { return 0; }
FUNC(int) bpf_lsm_file_open(struct file *file) { return 0; }
FUNC(void) bpf_lsm_task_free(struct task_struct *task) {}
FUNC(int) bpf_iter_task(struct bpf_iter_meta *meta, struct task_struct *task) { return 0; }
FUNC(int) bpf_iter_bpf_map_elem(struct bpf_iter_meta *meta, struct bpf_map *map, void *key, void *value) { return 0; }
FUNC(int) tcp_sendmsg(struct sock *sk, struct msghdr *msg, u64 size) { return 0; }
typedef void (*btf_trace_sched_switch)(void *, bool preempt, struct task_struct *prev, struct task_struct *next,
				       u32 prev_state);
btf_trace_sched_switch trace_sched_switch;
struct rq runqueues __attribute__((section(".data..percpu"), used));
struct all {
	struct bpf_nf_ctx nf;
	struct nf_hook_state state;
	struct sk_buff skb;
	struct pt_regs regs;
	struct xdp_buff xdp;
	struct tcp_sock tcp;
	struct bpf_cpumask mask;
	struct mm_struct mm;
	struct css_set css;
	struct file file;
	struct inode inode;
	struct seq_file seq;
	struct xdp_md md;
	struct __sk_buff buff;
} all __attribute__((used));

FUNC(void) bpf_rcu_read_lock(void) {}
FUNC(void) bpf_rcu_read_unlock(void) {}
FUNC(void) bpf_preempt_disable(void) {}
FUNC(void) bpf_preempt_enable(void) {}
FUNC(struct task_struct *) bpf_task_acquire(struct task_struct *p) { return p; }
FUNC(void) bpf_task_release(struct task_struct *p) {}
FUNC(struct task_struct *) bpf_task_from_pid(s32 pid) { return 0; }
FUNC(struct bpf_cpumask *) bpf_cpumask_create(void) { return 0; }
FUNC(void) bpf_cpumask_release(struct bpf_cpumask *cpumask) {}
FUNC(bool) bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) { return 0; }
FUNC(void) bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *cpumask) {}
FUNC(int) bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) { return 0; }
FUNC(int *) bpf_iter_num_next(struct bpf_iter_num *it) { return 0; }
FUNC(void) bpf_iter_num_destroy(struct bpf_iter_num *it) {}
FUNC(int) bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task__nullable, u32 flags) { return 0; }
FUNC(struct task_struct *) bpf_iter_task_next(struct bpf_iter_task *it) { return 0; }
FUNC(void) bpf_iter_task_destroy(struct bpf_iter_task *it) {}
FUNC(int) bpf_dynptr_from_skb(struct __sk_buff *s, u64 flags, struct bpf_dynptr *ptr__uninit) { return 0; }
FUNC(int) bpf_dynptr_from_xdp(struct xdp_md *x, u64 flags, struct bpf_dynptr *ptr__uninit) { return 0; }
FUNC(void *) bpf_dynptr_slice(const struct bpf_dynptr *p, u32 offset, void *buffer__opt, u32 buffer__szk) { return 0; }
FUNC(void *) bpf_dynptr_slice_rdwr(const struct bpf_dynptr *p, u32 offset, void *buffer__opt, u32 buffer__szk) { return 0; }
FUNC(void *) bpf_cast_to_kern_ctx(void *obj) { return 0; }
FUNC(int) bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, u32 *hash, u32 *rss_type) { return 0; }
FUNC(int) bpf_copy_from_user_str(void *dst, u32 dst__sz, const void *unsafe_ptr__ign, u64 flags) { return 0; }
