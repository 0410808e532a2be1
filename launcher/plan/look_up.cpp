#include "launcher/plan/look_up.hpp"

#include <unistd.h>

#include "launcher/devices/devices.hpp"
#include "launcher/devices/topology.hpp"
#include "launcher/options/nccl_record.hpp"
#include "launcher/plan/binding.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {
namespace {

namespace variable = rendezvous::variable;

// All cores of the machine, as torchrun counts; the affinity mask of this process may be smaller.
int online_cpus(const Roots& roots) {
  const auto text = read_trimmed(roots.sys + "/devices/system/cpu/online");
  const auto count = parse_id_list(text.value_or("")).size();
  return count > 0 ? static_cast<int>(count) : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

NodeFacts look_up_node(const Options& options, const Roots& roots,
                       const std::function<const char*(const char*)>& get) {
  NodeFacts node;
  auto& facts = node.facts;
  if (const char* list = get(variable::kCudaVisibleDevices)) facts.cuda_visible_devices = list;
  facts.omp_num_threads_set = get(variable::kOmpNumThreads) != nullptr;
  facts.nccl_async_error_handling_set = get(variable::kNcclAsyncErrorHandling) != nullptr;
  facts.allocator_set =
      get(variable::kAllocator) != nullptr || get(variable::kCudaAllocator) != nullptr;
  for (const char* name :
       {nccl_record::kPipeVariable, nccl_record::kFileVariable, nccl_record::kNewFileVariable})
    facts.nccl_record_set |= get(name) != nullptr;
  facts.run_id = options.rdzv_id;

  const auto gpus = find_gpus(roots);
  auto visible = options.gpus ? chosen_gpus(*options.gpus, gpus)
                              : visible_gpus(facts.cuda_visible_devices, gpus);
  for (const auto& gpu : visible) facts.gpus.push_back(gpu.name);
  node.nproc = number_of_ranks(options, static_cast<int>(visible.size()), online_cpus(roots));

  if (options.numa_binding != NumaBinding::none) {
    if (options.nproc.kind == RankCount::Kind::cpu) visible.clear();
    facts.bindings = bindings(options.numa_binding, node.nproc, nodes_of(visible, gpus, roots),
                              own_topology(roots));
  }
  return node;
}

}  // namespace mgpu::launcher
