#pragma once

namespace mgpu::data {

// A mapped file that another program makes shorter has pages without contents: a process that reads
// one gets SIGBUS. From now on `fail` is then called in that thread, with one line that names the
// file; it must not return. The same happens for a page that the disk cannot read. Other causes of
// SIGBUS, such as a full /dev/shm, end the process as before.
void report_lost_pages(void (*fail)(const char* message));

}  // namespace mgpu::data
