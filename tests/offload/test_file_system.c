/* Which file systems share free space: by facts made here, since a machine has few kinds. What a
 * mounted overlay reports is in tests/cli/test_disks.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "offload/file_system.h"
#include "tests/temporary.h"

enum { EXT4 = 0xef53, XFS = 0x58465342, OVERLAY = 0x794c7630 };
#define BTRFS UINT64_C(0x9123683e)
#define ZFS   UINT64_C(0x2fc12fc1)

static coh_file_system made(uint64_t device, uint64_t type, const char *source, uint64_t free_bytes)
{
    coh_file_system system = { .device = device,
                               .type = type,
                               .total_bytes = UINT64_C(1) << 40,
                               .free_bytes = free_bytes,
                               .file_count = 1000,
                               .free_file_count = 900 };
    snprintf(system.source, sizeof(system.source), "%s", source);
    return system;
}

static int is_shared(coh_file_system a, coh_file_system b)
{
    assert_int_equal(coh_file_system_is_shared(&a, &b), coh_file_system_is_shared(&b, &a));
    return coh_file_system_is_shared(&a, &b);
}

static void file_systems_of_one_pool_share_space(void **state)
{
    (void)state;
    assert_true(is_shared(made(1, EXT4, "", 5), made(1, EXT4, "", 6)));
    /* subvolumes */
    assert_true(is_shared(made(1, BTRFS, "/dev/sda2", 5), made(2, BTRFS, "/dev/sda2", 5)));
    /* datasets: a quota makes the free bytes differ */
    assert_true(is_shared(made(1, ZFS, "tank/home", 5), made(2, ZFS, "tank/data/x", 6)));
    assert_true(is_shared(made(1, ZFS, "tank", 5), made(2, ZFS, "tank/data", 5)));
    /* the root of a container and a volume of the same drive */
    assert_true(is_shared(made(1, OVERLAY, "", 5), made(2, XFS, "", 5)));
    assert_true(is_shared(made(1, OVERLAY, "", 5), made(2, OVERLAY, "", 5)));
}

static void other_drives_share_none_however_equal_they_are(void **state)
{
    (void)state;
    assert_false(is_shared(made(1, EXT4, "", 5), made(2, EXT4, "", 5)));
    assert_false(is_shared(made(1, XFS, "", 5), made(2, XFS, "", 5)));
    assert_false(is_shared(made(1, BTRFS, "/dev/sda2", 5), made(2, BTRFS, "/dev/sda3", 5)));
    assert_false(is_shared(made(1, BTRFS, "/dev/sda2", 5), made(2, BTRFS, "/dev/sda", 5)));
    assert_false(is_shared(made(1, BTRFS, "", 5), made(2, BTRFS, "", 5))); /* unknown */
    assert_false(is_shared(made(1, ZFS, "tank/home", 5), made(2, ZFS, "tank2/home", 5)));
    assert_false(is_shared(made(1, ZFS, "", 5), made(2, ZFS, "", 5)));
    assert_false(is_shared(made(1, ZFS, "tank", 5), made(2, BTRFS, "tank", 5)));
    assert_false(is_shared(made(1, OVERLAY, "", 5), made(2, EXT4, "", 6)));
    coh_file_system other = made(2, EXT4, "", 5);
    other.free_file_count++;
    assert_false(is_shared(made(1, OVERLAY, "", 5), other));
    coh_file_system none = { .device = 1, .type = OVERLAY }, nothing = { .device = 2 };
    assert_false(is_shared(none, nothing)); /* neither reports a number */
}

/* The line of mount 28 is longer than what is read of it at once, as that of an overlay is. */
static void the_source_of_a_mount_is_found_by_its_number(void **state)
{
    (void)state;
    char folder[256], path[300], source[256], cut[4];
    assert_int_equal(temporary_folder(folder, sizeof(folder), "mountinfo"), 0);
    snprintf(path, sizeof(path), "%s/mountinfo", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("2 1 8:1 / / rw - ext4 /dev/sda1 rw\n", file);
    fputs("28 2 0:30 / /a rw shared:1 master:2 - overlay overlay rw,lowerdir=", file);
    for (int i = 0; i < 5000; i++)
        fputs("/l", file);
    fputs(" - x y z\n"
          "29 2 0:31 /@ /b\\040c rw,noatime shared:3 - btrfs /dev/nvme0n1p2 rw,subvol=/@\n"
          "291 2 0:32 / /d rw - zfs tank/home rw\n"
          "30 2 0:33 / /e rw",
          file);
    assert_int_equal(fclose(file), 0);
    const struct {
        uint64_t id;
        const char *source;
    } all[] = { { 2, "/dev/sda1" },   { 28, "overlay" }, { 29, "/dev/nvme0n1p2" },
                { 291, "tank/home" }, { 30, "" },        { 9, "" } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_mount_source(path, all[i].id, source, sizeof(source));
        assert_string_equal(source, all[i].source);
    }
    coh_mount_source(path, 2, cut, sizeof(cut));
    assert_string_equal(cut, "/de");
    coh_mount_source(folder, 2, source, sizeof(source));
    assert_string_equal(source, "");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void a_path_that_is_not_there_shares_nothing(void **state)
{
    (void)state;
    coh_file_system system;
    assert_int_equal(coh_file_system_find("/", &system), 0);
    assert_true(system.total_bytes > 0 && system.free_bytes <= system.total_bytes);
    assert_true(coh_space_is_shared("/", "/."));
    assert_false(coh_space_is_shared("/", "/not/there"));
    assert_false(coh_space_is_shared("/", "/proc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_systems_of_one_pool_share_space),
        cmocka_unit_test(other_drives_share_none_however_equal_they_are),
        cmocka_unit_test(the_source_of_a_mount_is_found_by_its_number),
        cmocka_unit_test(a_path_that_is_not_there_shares_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
