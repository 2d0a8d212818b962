/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Files: who reads how much of what, and who may open them.
 */
#include "kernel.h"

#define EPERM 1

struct identity {
	__u64 inode;
	__u32 device, tgid;
};

struct totals {
	__u64 calls, bytes;
	char name[32];
};

MAP(HASH, 4096, struct identity, struct totals) files SEC(".maps");
MAP(HASH, 1024, __u64, __u64) protected SEC(".maps");
MAP(HASH, 1024, __u64, struct identity) entered SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_INODE_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} opened SEC(".maps");

const volatile __u32 only_tgid = 0;
volatile __u64 noted;

static __always_inline void identify(struct identity *id, struct file *file)
{
	struct inode *inode = file->f_inode;

	id->inode = inode->i_ino;
	id->device = inode->i_sb->s_dev;
	id->tgid = bpf_get_current_pid_tgid() >> 32;
}

SEC("fentry/vfs_read")
int reads(__u64 *ctx)
{
	struct file *file = ARG(struct file *, 0);
	struct totals fresh = {}, *totals;
	struct identity id = {};

	identify(&id, file);
	if (only_tgid && id.tgid != only_tgid)
		return 0;
	totals = bpf_map_lookup_elem(&files, &id);
	if (!totals) {
		bpf_probe_read_kernel_str(fresh.name, sizeof(fresh.name), file->f_path.dentry->d_name.name);
		bpf_map_update_elem(&files, &id, &fresh, BPF_NOEXIST);
		totals = bpf_map_lookup_elem(&files, &id);
		if (!totals)
			return 0;
	}
	totals->calls++;
	totals->bytes += ARG(__u64, 2);
	return 0;
}

SEC("fexit/vfs_read")
int read_by(__u64 *ctx)
{
	struct file *file = ARG(struct file *, 0);
	__s64 result = ARG(__s64, 4);
	struct totals *totals;
	struct identity id = {};

	if (result <= 0)
		return 0;
	identify(&id, file);
	totals = bpf_map_lookup_elem(&files, &id);
	if (totals)
		totals->bytes += result;
	return 0;
}

/* The same as a probe of any kernel would do it: by copies. */
SEC("fentry/vfs_read")
int by_copies(__u64 *ctx)
{
	struct file *file = ARG(struct file *, 0);
	struct identity id = {};
	unsigned short mode;

	BPF_CORE_READ_INTO(&mode, file, f_inode, i_mode);
	if ((mode & 0170000) != 0100000)
		return 0;
	id.inode = BPF_CORE_READ(file, f_inode, i_ino);
	id.device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	if (bpf_core_field_exists(file->f_path.dentry->d_parent))
		id.tgid = BPF_CORE_READ(file, f_path.dentry, d_parent, d_inode, i_ino);
	bpf_map_update_elem(&entered, &(__u64){ bpf_get_current_pid_tgid() }, &id, BPF_ANY);
	return 0;
}

SEC("lsm/file_open")
int guarded(__u64 *ctx)
{
	struct file *file = ARG(struct file *, 0);
	__u64 inode = file->f_inode->i_ino, *uid, *count;
	int before = ARG(int, 1);

	if (before)
		return before;
	count = bpf_inode_storage_get(&opened, file->f_inode, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (count)
		__sync_fetch_and_add(count, 1);
	uid = bpf_map_lookup_elem(&protected, &inode);
	if (!uid || (__u32)*uid == (__u32)bpf_get_current_uid_gid())
		return 0;
	return file->f_flags & 3 ? -EPERM : 0;
}

SEC("lsm.s/file_open")
int guarded_by_path(__u64 *ctx)
{
	char path[64];
	long length = bpf_d_path((void *)&ARG(struct file *, 0)->f_path, path, sizeof(path));

	if (length < 4 || length > (long)sizeof(path))
		return 0;
	return bpf_strncmp(path, 5, "/etc/") == 0 && path[(length - 2) & 63] == '~' ? -EPERM : 0;
}

SEC("fentry/security_file_open")
int chain_of_names(__u64 *ctx)
{
	struct dentry *dentry = ARG(struct file *, 0)->f_path.dentry;
	__u64 hash = 0;

	for (int i = 0; i < 12; i++) {
		struct dentry *parent = dentry->d_parent;
		char name[16] = {};

		if (!parent || parent == dentry)
			break;
		bpf_probe_read_kernel_str(name, sizeof(name), dentry->d_name.name);
		for (int j = 0; j < 16; j++)
			hash = hash * 31 + name[j];
		dentry = parent;
	}
	bpf_map_update_elem(&protected, &hash, &hash, BPF_NOEXIST);
	return 0;
}

SEC("fmod_ret/security_file_open")
int refused_after_all(__u64 *ctx)
{
	int so_far = ARG(int, 1);

	return so_far ? so_far : ARG(struct file *, 0)->f_inode->i_size > 1 << 30 ? -EPERM : 0;
}

/* Hooks answer 0 or an error, not a yes. */
SEC("lsm/file_open")
int bad_answer(__u64 *ctx)
{
	return ARG(struct file *, 0)->f_flags & 3 ? 1 : 0;
}

/* Programs at a function's entry have nothing to say. */
SEC("fentry/vfs_read")
int bad_result(__u64 *ctx)
{
	return ARG(struct file *, 0)->f_flags & 1;
}

/* A name is the kernel's memory, and may be anywhere. */
SEC("fentry/vfs_read")
int bad_name_read_directly(__u64 *ctx)
{
	const unsigned char *name = ARG(struct file *, 0)->f_path.dentry->d_name.name;

	noted = name[0];
	return 0;
}

/* Where the caller wants its bytes is in user space. */
SEC("fentry/vfs_read")
int bad_user_memory(__u64 *ctx)
{
	noted = ARG(volatile char *, 1)[0];
	return 0;
}

/* Copying from user space may sleep, which this hook's program may not. */
SEC("lsm/file_open")
int bad_sleep(__u64 *ctx)
{
	char start[8];

	bpf_copy_from_user(start, sizeof(start), ARG(void *, 0));
	return 0;
}

/* Inodes have storage, files have not. */
SEC("lsm/file_open")
int bad_storage_of_a_file(__u64 *ctx)
{
	return bpf_inode_storage_get(&opened, ARG(void *, 0), 0, 0) ? -EPERM : 0;
}

/* The structure is shorter than that. */
SEC("fentry/vfs_read")
int bad_beyond_the_end(__u64 *ctx)
{
	char *file = ARG(char *, 0);

	noted = *(volatile __u64 *)(file + 4096);
	return 0;
}

/* The result of a function is there at its return, not before. */
SEC("fentry/vfs_read")
int bad_result_before_the_return(__u64 *ctx)
{
	noted = ctx[4];
	return 0;
}
