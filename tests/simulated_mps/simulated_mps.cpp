// A simulated MPS device: ordinary tensors on PyTorch's own device type "mps", whose bytes lie in
// host memory and whose operators run PyTorch's CPU kernels.
//
// Only public headers are used. What a Mac's libtorch registers when it is loaded (allocator,
// device guard, generator, hooks behind torch.mps, kernels) this library registers instead; the
// rest of PyTorch (dispatcher, autograd, autocast, serialization) is the real one and does not
// notice. Which operator has an MPS kernel is not known here: ops.py reads it from the installed
// PyTorch and calls simulated_mps_add_op. README.md says what is not simulated.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>
#include <torch/library.h>
#include <torch/version.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>

#if __has_include(<c10/core/DeviceCapability.h>)
#include <c10/core/DeviceCapability.h>
#define HAS_DEVICE_CAPABILITY
#endif

#define TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::Storage;
using c10::StorageImpl;
using Stack = torch::jit::Stack;

const Device kMps(c10::DeviceType::MPS, 0);

void check_device(const Device& device) {
  TORCH_CHECK(
      device.type() == c10::DeviceType::MPS && device.index() <= 0,
      "There is one MPS device, mps:0; '", device, "' does not exist (simulated MPS).");
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// ------------------------------------------------------------------------------------- memory
// Bytes are counted as they are allocated, rounded up to Metal's 256. Limits and texts are those
// of PyTorch's MPSAllocator; heaps are not modelled beyond "the driver keeps what was used".

constexpr int64_t kSmallHeap = int64_t(8) << 20;        // kSmallHeap of MPSAllocator.h
constexpr int64_t kOtherAllocations = int64_t(384) << 10;  // what MPSGraph itself holds, about
constexpr double kLargestRatio = 2.0, kDefaultHigh = 1.7, kDefaultLow = 1.4;  // MPSAllocator.h

std::atomic<int64_t> current_bytes{0};  // of live tensors
std::atomic<int64_t> peak_bytes{0};     // highest since reset_peak_memory_stats
std::atomic<int64_t> cached_bytes{0};   // highest since empty_cache: what the driver still holds
std::atomic<int64_t> limit_bytes{0};    // 0: no limit
int64_t recommended_bytes = 0;
std::atomic<bool> forked{false};

int64_t round_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

int64_t driver_bytes() {
  return round_up(cached_bytes, kSmallHeap) + kOtherAllocations;
}

std::string format_bytes(int64_t n) {  // units since 2.8; older releases are not supported here
  char text[64];
  const double bytes = double(n);
  if (n <= int64_t(1) << 10)
    snprintf(text, sizeof text, "%lld bytes", static_cast<long long>(n));
  else if (n <= int64_t(1) << 20)
    snprintf(text, sizeof text, "%.2f KiB", bytes / (1 << 10));
  else if (n <= int64_t(1) << 30)
    snprintf(text, sizeof text, "%.2f MiB", bytes / (1 << 20));
  else
    snprintf(text, sizeof text, "%.2f GiB", bytes / (1 << 30));
  return text;
}

const char* pool_name([[maybe_unused]] int64_t requested) {
#if TORCH_AT_LEAST(12)
  return "shared";  // the only kind of pool since 2.12
#else
  return requested <= int64_t(sizeof(int64_t)) ? "shared" : "private";  // kMaxScalarAlloc
#endif
}

// Numbers are made into text here and not by a C++ stream: compiled with g++ 13 for the wheel of
// PyTorch 2.11, a stream crashes on them (two releases of libstdc++ meet in one process).
std::string format_ratio(double ratio) {
  char text[32];
  snprintf(text, sizeof text, "%g", ratio);
  return text;
}

double ratio_of(const char* variable, double otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtod(text, nullptr) : otherwise;
}

// As MPSAllocator does it: when it is first needed, so that a bad value fails the first allocation.
struct Watermarks {
  double high, low;
};
const Watermarks& watermarks() {
  static const Watermarks ratios = [] {
    Watermarks r{
        ratio_of("PYTORCH_MPS_HIGH_WATERMARK_RATIO", kDefaultHigh),
        ratio_of("PYTORCH_MPS_LOW_WATERMARK_RATIO", kDefaultLow)};
    TORCH_CHECK(
        r.high >= 0 && r.high <= kLargestRatio,
        "invalid high watermark ratio ",
        format_ratio(r.high));
    const double highest_low = r.high == 0 ? kLargestRatio : r.high;
    TORCH_CHECK(
        r.low >= 0 && r.low <= highest_low,
        "invalid low watermark ratio ",
        format_ratio(r.low));
    limit_bytes = int64_t(r.high * double(recommended_bytes));
    return r;
  }();
  return ratios;
}

void raise_to(std::atomic<int64_t>& mark, int64_t value) {
  for (int64_t seen = mark; seen < value && !mark.compare_exchange_weak(seen, value);) {
  }
}

// Bytes of the simulated device, given back when the owner of this object is destroyed.
class Reservation {
 public:
  explicit Reservation(int64_t requested) : bytes_(round_up(requested, 256)) {
    if (requested == 0)
      return;
    watermarks();
    TORCH_CHECK(
        !forked,
        "Simulated MPS: this process was forked from one that had used MPS. On a Mac, MPS hangs or "
        "crashes there: use the start method 'spawn', macOS's default.");
    // Metal's maxBufferLength differs by chip; the recommended size stands in for it.
    const int64_t asked = std::exchange(bytes_, 0);  // nothing to give back if a check throws
    TORCH_CHECK(asked < recommended_bytes, "Invalid buffer size: ", format_bytes(asked));
    const int64_t limit = limit_bytes;
    const int64_t now = (current_bytes += asked);
    if (limit > 0 && now > limit) {
      current_bytes -= asked;
      TORCH_CHECK(
          false,
          "MPS backend out of memory (MPS allocated: ", format_bytes(now - asked),
          ", other allocations: ", format_bytes(kOtherAllocations),
          ", max allowed: ", format_bytes(limit), "). Tried to allocate ", format_bytes(asked),
          " on ", pool_name(requested),
          " pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory "
          "allocations (may cause system failure).");
    }
    bytes_ = asked;
    raise_to(peak_bytes, now);
    raise_to(cached_bytes, now);
  }
  Reservation(Reservation&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() {
    current_bytes -= bytes_;
  }

 private:
  int64_t bytes_;
};

// A block of host memory that passes for device memory. `Owner` keeps the host block alive.
template <class Owner>
c10::DataPtr device_block(Reservation reservation, void* data, Owner owner) {
  struct Held {
    Reservation reservation;
    Owner owner;
  };
  return {
      data,
      new Held{std::move(reservation), std::move(owner)},
      [](void* held) { delete static_cast<Held*>(held); },
      kMps};
}

#if TORCH_AT_LEAST(13)
using AllocatorBase = c10::DeviceAllocator;  // what gives torch.accelerator its memory functions
#else
using AllocatorBase = c10::Allocator;  // until 2.12 they fail on MPS, and so they do here
#endif

struct MpsAllocator final : AllocatorBase {
  c10::DataPtr allocate(size_t n) override {
    Reservation reservation(static_cast<int64_t>(n));  // before the host spends memory on it
    auto host = c10::GetCPUAllocator()->allocate(n);
    void* data = host.get();
    return device_block(std::move(reservation), data, std::move(host));
  }
  void copy_data(void* to, const void* from, std::size_t n) const override {
    default_copy_data(to, from, n);
  }
#if TORCH_AT_LEAST(13)
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    cached_bytes = current_bytes.load();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*bytes)[0].current = current_bytes;
      (*bytes)[0].peak = peak_bytes;
    }
    stats.reserved_bytes[0].current = stats.reserved_bytes[0].peak = driver_bytes();
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex) override {
    peak_bytes = current_bytes.load();
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex) override {
    const int64_t free_bytes = std::max<int64_t>(0, recommended_bytes - current_bytes);
    return {size_t(free_bytes), size_t(recommended_bytes)};
  }
#endif
};

MpsAllocator* allocator() {
  static auto* instance = new MpsAllocator;  // tensors may outlive static destructors: never freed
  return instance;
}

// -------------------------------------------------------------------------------- device guard
// One device and one stream. Every operator is finished when it returns, so there is nothing to
// wait for, and an event is the time at which it was recorded.

struct MpsGuard final : c10::impl::DeviceGuardImplInterface {
  static c10::Stream stream() {
    return c10::Stream(c10::Stream::DEFAULT, kMps);
  }
  c10::DeviceType type() const override {
    return c10::DeviceType::MPS;
  }
  Device exchangeDevice(Device device) const override {
    check_device(device);
    return kMps;
  }
  Device getDevice() const override {
    return kMps;
  }
  void setDevice(Device device) const override {
    check_device(device);
  }
  void uncheckedSetDevice(Device) const noexcept override {}
  c10::Stream getStream(Device) const override {
    return stream();
  }
  c10::Stream getDefaultStream(Device) const override {
    return stream();
  }
  c10::Stream getNewStream(Device, int) const override {
    return stream();
  }
  c10::Stream exchangeStream(c10::Stream) const override {
    return stream();
  }
  DeviceIndex deviceCount() const noexcept override {
    return 1;
  }
  bool queryStream(const c10::Stream&) const override {
    return true;
  }
#ifdef HAS_DEVICE_CAPABILITY
  c10::DeviceCapability getDeviceCapability(Device) const override {
    c10::DeviceCapability capability;  // all dtypes
    capability.capability_data.capability_bits &=
        ~((1ULL << c10::kIndex_Double) | (1ULL << c10::kIndex_ComplexDouble));
    return capability;
  }
#endif
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  void synchronizeEvent(void*) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
  void block(void*, const c10::Stream&) const override {}
  void record(void** event, const c10::Stream&, const DeviceIndex, const c10::EventFlag)
      const override {
    if (!*event)
      *event = new double;
    *static_cast<double*>(*event) = now_ms();
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<double*>(event);
  }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    return *static_cast<double*>(end) - *static_cast<double*>(start);
  }
};

// ----------------------------------------------------------------------------------- generator
// CPU kernels want a CPU generator, so one is wrapped. On a Mac the same seed gives other numbers
// on mps than on cpu; a program that relies on equal ones must fail here too, hence the mask.

constexpr uint64_t kSeedMask = 0x4d5053;

struct MpsGenerator final : c10::GeneratorImpl {
  at::Generator cpu;

  explicit MpsGenerator(uint64_t seed = c10::default_rng_seed_val)
      : GeneratorImpl(kMps, DispatchKeySet(DispatchKey::MPS)),
        cpu(at::detail::createCPUGenerator(seed ^ kSeedMask)) {}
  void set_current_seed(uint64_t seed) override {
    cpu.set_current_seed(seed ^ kSeedMask);
  }
  uint64_t current_seed() const override {
    return cpu.current_seed() ^ kSeedMask;
  }
  uint64_t seed() override {
    return cpu.seed() ^ kSeedMask;
  }
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override {
    return 0;
  }
  void set_state(const c10::TensorImpl& state) override {
    cpu.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return cpu.unsafeGetGeneratorImpl()->get_state();
  }
  MpsGenerator* clone_impl() const override {
    auto* copy = new MpsGenerator;
    copy->cpu = cpu.clone();
    return copy;
  }
};

const at::Generator& default_generator() {
  static auto* generator = new at::Generator(at::make_generator<MpsGenerator>());
  return *generator;
}

at::Generator cpu_generator(const at::Generator& generator) {
  TORCH_CHECK(
      generator.device().type() == c10::DeviceType::MPS,
      "Expected a 'mps' device type for generator but found '", generator.device().type(), "'");
  return static_cast<MpsGenerator*>(generator.unsafeGetGeneratorImpl())->cpu;
}

// --------------------------------------------------------------------------------------- hooks
// What torch.mps, torch.backends.mps and torch.accelerator ask. No `override` on functions that
// one of the supported releases lacks.

std::mutex events_mutex;
std::unordered_map<uint32_t, double>* events = new std::unordered_map<uint32_t, double>;
uint32_t last_event = 0;

struct MpsHooks final : at::MPSHooksInterface {
  MpsHooks() = default;
  explicit MpsHooks(at::MPSHooksArgs) {}  // how older releases construct them
  void init() const override {}
  bool hasMPS() const override {
    return true;
  }
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool isOnMacOSorNewer(unsigned major, unsigned minor) const override {
    return major < 15 || (major == 15 && minor == 0);  // macOS 15.0
  }
  bool hasPrimaryContext(DeviceIndex) const override {
    return true;
  }
  DeviceIndex deviceCount() const override {
    return 1;
  }
  DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  void setCurrentDevice(DeviceIndex index) const override {
    check_device(Device(c10::DeviceType::MPS, index));
  }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    check_device(Device(c10::DeviceType::MPS, index));
    return 0;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override {
    if (index >= 0)
      check_device(Device(c10::DeviceType::MPS, index));
    return 0;
  }
  Device getDeviceFromPtr(void*) const override {
    return kMps;
  }
  const at::Generator& getDefaultGenerator(DeviceIndex) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(DeviceIndex) const override {
    return at::make_generator<MpsGenerator>();
  }
  c10::Allocator* getMPSDeviceAllocator() const override {
    return allocator();
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return c10::GetCPUAllocator();
  }
  bool isPinnedPtr(const void*) const override {
    return false;
  }
  void deviceSynchronize() const override {}
  void commitStream() const override {}
  void emptyCache() const override {
    cached_bytes = current_bytes.load();
  }
  size_t getCurrentAllocatedMemory() const override {
    return current_bytes;
  }
  size_t getDriverAllocatedMemory() const override {
    return driver_bytes();
  }
  size_t getRecommendedMaxMemory() const override {
    return recommended_bytes;
  }
  size_t getMaxBufferLength() const {
    return recommended_bytes;
  }
  void setMemoryFraction(double ratio) const override {
    watermarks();  // before it, so that reading the variables later does not undo it
    limit_bytes = int64_t(ratio * double(recommended_bytes));
  }
  void profilerStartTrace(const std::string&, bool) const override {}
  void profilerStopTrace() const override {}
  uint32_t acquireEvent(bool) const override {
    std::lock_guard<std::mutex> lock(events_mutex);
    (*events)[++last_event] = 0;
    return last_event;
  }
  void releaseEvent(uint32_t event) const override {
    std::lock_guard<std::mutex> lock(events_mutex);
    events->erase(event);
  }
  void recordEvent(uint32_t event) const override {
    std::lock_guard<std::mutex> lock(events_mutex);
    (*events)[event] = now_ms();
  }
  void waitForEvent(uint32_t) const override {}
  void synchronizeEvent(uint32_t) const override {}
  bool queryEvent(uint32_t) const override {
    return true;
  }
  double elapsedTimeOfEvents(uint32_t start, uint32_t end) const override {
    std::lock_guard<std::mutex> lock(events_mutex);
    return (*events)[end] - (*events)[start];
  }
};

// ----------------------------------------------------------------------------------- factories

void check_dtype(at::ScalarType dtype) {
  TORCH_CHECK_TYPE(
      dtype != at::kDouble,
      "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
      "Please use float32 instead.");
  TORCH_CHECK_TYPE(
      dtype != at::kComplexDouble,
      "Trying to convert ComplexDouble to the MPS backend but it does not have support for that "
      "dtype.");
}

// Shared by both factories; returns the dtype to use.
at::ScalarType check_factory(
    size_t dim,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<Device> device) {
  if (device)
    check_device(*device);
  const auto resolved = c10::dtype_or_default(dtype);
  check_dtype(resolved);
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::layout_or_default(layout) == c10::kStrided,
      "only strided tensors are supported on MPS");
  TORCH_CHECK(dim <= 16, "MPS supports tensors with dimensions <= 16, but got ", std::to_string(dim), ".");
  return resolved;
}

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<Device> device,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  const auto resolved = check_factory(size.size(), dtype, layout, device);
  return at::detail::empty_generic(
      size, allocator(), DispatchKeySet(DispatchKey::MPS), resolved, format);
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<Device> device,
    std::optional<bool>) {
  const auto resolved = check_factory(size.size(), dtype, layout, device);
  return at::detail::empty_strided_generic(
      size, stride, allocator(), DispatchKeySet(DispatchKey::MPS), resolved);
}

// --------------------------------------------------------------------------------------- twins
// A kernel of the CPU wants CPU tensors. For the duration of one call each MPS tensor gets a twin:
// a CPU tensor with the same bytes and geometry. Results go the other way. Nothing is copied.

class Twins {
 public:
  at::Tensor to_cpu(const at::Tensor& tensor) {
    for (auto& pair : tensors_)
      if (pair.mps.is_same(tensor))
        return pair.cpu;
    auto twin = with_storage(cpu_storage(tensor.storage()), DispatchKey::CPU, tensor);
    tensors_.push_back({tensor, twin});
    return twin;
  }

  // A CPU tensor that the kernel may return as it is: the target of a copy to the CPU.
  void pass_through(const at::Tensor& tensor) {
    tensors_.push_back({tensor, tensor});
  }

  at::Tensor to_mps(const at::Tensor& tensor) {
    if (!tensor.defined())
      return tensor;
    for (auto& pair : tensors_)
      if (pair.cpu.is_same(tensor))
        return pair.mps;
    TORCH_CHECK_NOT_IMPLEMENTED(
        tensor.layout() == c10::kStrided && tensor.has_storage(),
        "Simulated MPS does not cover tensors of layout ", tensor.layout(),
        ", which this operator returns. A Mac has sparse_coo and sparse_csr tensors on mps since "
        "PyTorch 2.9: use the CPU here.");
    if (!tensor.device().is_cpu())
      return tensor;
    check_dtype(tensor.scalar_type());
    return with_storage(mps_storage(tensor.storage()), DispatchKey::MPS, tensor);
  }

  // After the call: in-place and out= kernels may have resized a tensor or replaced its block.
  void write_back() {
    for (auto& pair : storages_) {
      if (pair.cpu.data() == pair.data && pair.cpu.nbytes() == pair.mps->nbytes())
        continue;
      const int64_t n = pair.cpu.nbytes();
      void* data = pair.cpu.mutable_data();
      pair.mps->set_data_ptr_noswap(device_block(Reservation(n), data, pair.cpu));
      pair.mps->set_nbytes(n);
    }
    for (auto& [mps, cpu] : tensors_)
      if (mps.sizes() != cpu.sizes() || mps.strides() != cpu.strides() ||
          mps.storage_offset() != cpu.storage_offset())
        mps.unsafeGetTensorImpl()->set_sizes_and_strides(
            cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }

 private:
  struct StoragePair {
    StorageImpl* mps;
    Storage cpu;
    void* data;  // of `cpu` before the call
  };
  struct TensorPair {
    at::Tensor mps, cpu;
  };
  c10::SmallVector<StoragePair, 8> storages_;
  c10::SmallVector<TensorPair, 8> tensors_;

  Storage cpu_storage(const Storage& mps) {
    for (auto& pair : storages_)
      if (pair.mps == mps.unsafeGetStorageImpl())
        return pair.cpu;
    void* data = mps.mutable_data();
    c10::DataPtr block(  // keeps the MPS storage alive
        data,
        new Storage(mps),
        [](void* storage) { delete static_cast<Storage*>(storage); },
        Device(at::kCPU));
    Storage cpu(c10::make_intrusive<StorageImpl>(
        StorageImpl::use_byte_size_t(),
        mps.nbytes(),
        std::move(block),
        c10::GetCPUAllocator(),
        /*resizable=*/true));
    storages_.push_back({mps.unsafeGetStorageImpl(), cpu, data});
    return cpu;
  }

  Storage mps_storage(const Storage& cpu) {
    auto* impl = cpu.unsafeGetStorageImpl();
    for (auto& pair : storages_)  // a view of an argument, or of another result
      if (pair.cpu.unsafeGetStorageImpl() == impl)
        return Storage(c10::intrusive_ptr<StorageImpl>::reclaim_copy(pair.mps));
    const size_t n = impl->nbytes();
    void* data = impl->mutable_data();
    Storage mps(c10::make_intrusive<StorageImpl>(
        StorageImpl::use_byte_size_t(),
        n,
        device_block(Reservation(static_cast<int64_t>(n)), data, cpu),
        allocator(),
        /*resizable=*/true));
    storages_.push_back({mps.unsafeGetStorageImpl(), cpu, data});
    return mps;
  }

  static at::Tensor with_storage(Storage storage, DispatchKey key, const at::Tensor& like) {
    DispatchKeySet keys(key);
    if (like._is_zerotensor())
      keys = keys.add(DispatchKey::ZeroTensor);
    auto tensor =
        at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
    auto* impl = tensor.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    if (like.unsafeGetTensorImpl()->is_wrapped_number())
      impl->set_wrapped_number(true);
    if (like.is_conj())
      tensor._set_conj(true);
    if (like.is_neg())
      tensor._set_neg(true);
    return tensor;
  }
};

// -------------------------------------------------------------------------------------- kernel
// One boxed kernel stands for all operators. What it does with one depends on its kind; ops.py
// holds the same numbers.

enum Kind : uint8_t {
  kMissing = 0,   // no MPS kernel: an error, or the CPU if the fallback is on
  kKernel = 1,    // has an MPS kernel
  kMetadata = 2,  // touches only sizes, strides and storage: runs on the MPS tensor itself
  kCopy = 3,      // may have operands on both sides
  kIndex = 4,     // indices may lie on the CPU
  kFallback = 5,  // PyTorch registers its CPU fallback for it, whatever the variable says
};

std::unordered_map<std::string, Kind>* kinds = new std::unordered_map<std::string, Kind>;
bool fallback_enabled = false;

Kind kind_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const void*, Kind> remembered;  // no string work in the hot path
  const auto& schema = op.schema();
  const auto known = remembered.find(&schema);
  if (known != remembered.end())
    return known->second;
  std::string name = schema.name();
  if (!schema.overload_name().empty())
    name += "." + schema.overload_name();
  const auto found = kinds->find(name);
  return remembered[&schema] = found == kinds->end() ? kMissing : found->second;
}

void fall_back(const c10::OperatorHandle& op, Kind kind) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      fallback_enabled || kind == kFallback,
      "The operator '", op.schema().operator_name(),
      "' is not currently implemented for the MPS device. If you want this op to be considered for "
      "addition please comment on https://github.com/pytorch/pytorch/issues/141287 and mention "
      "use-case, that resulted in missing op as well as commit hash " TORCH_COMMIT
      ". As a temporary fix, you can set the environment variable "
      "`PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for this op. WARNING: this will "
      "be slower than running natively on MPS.");
  TORCH_WARN_ONCE(  // once in a process, whatever the operator, as in MPSFallback.mm
      "The operator '", op.schema().operator_name(),
      "' is not currently supported on the MPS backend and will fall back to run on the CPU. This "
      "may have performance implications.");
}

// Replaces the arguments on the stack by what the CPU kernel can take.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, Kind kind) : schema_(op.schema()), kind_(kind) {}

  void to_cpu(Stack* stack, Twins& twins) const {
    const auto& arguments = schema_.arguments();
    const size_t first = stack->size() - arguments.size();
    for (size_t i = 0; i < arguments.size(); i++)
      convert((*stack)[first + i], arguments[i], twins);
  }

 private:
  const c10::FunctionSchema& schema_;
  Kind kind_;

  void convert(c10::IValue& value, const c10::Argument& argument, Twins& twins) const {
    if (value.isTensor()) {
      value = convert(value.toTensor(), argument, twins);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(convert(tensor, argument, twins));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        list.push_back(
            tensor ? std::optional<at::Tensor>(convert(*tensor, argument, twins)) : std::nullopt);
      value = list;
    } else if (value.isGenerator()) {
      value = cpu_generator(value.toGenerator());
    } else if (value.isNone() && argument.name() == "generator") {
      value = cpu_generator(default_generator());
    } else if (value.isDevice()) {
      if (value.toDevice().type() == c10::DeviceType::MPS) {
        check_device(value.toDevice());
        value = Device(at::kCPU);
      }
    }
  }

  at::Tensor convert(const at::Tensor& tensor, const c10::Argument& argument, Twins& twins) const {
    if (!tensor.defined())
      return tensor;
    if (tensor.device().type() == c10::DeviceType::MPS)
      return twins.to_cpu(tensor);
    TORCH_CHECK(
        may_be_elsewhere(tensor, argument),
        "Expected all tensors to be on the same device, but found at least two devices, mps:0 and ",
        tensor.device(), "! (when checking argument for argument ", argument.name(),
        " in method wrapper_MPS_", schema_.name().substr(schema_.name().rfind(':') + 1), ")");
    twins.pass_through(tensor);
    return tensor;
  }

  bool may_be_elsewhere(const at::Tensor& tensor, const c10::Argument& argument) const {
    if (!tensor.device().is_cpu())
      return false;
    if (kind_ == kCopy || kind_ == kMissing || kind_ == kFallback)
      return true;
    if (kind_ == kIndex && argument.name() == "indices")
      return true;
    return tensor.dim() == 0 && !argument.is_out();  // a Python number, or as good as one
  }
};

void results_to_mps(const c10::OperatorHandle& op, Stack* stack, Twins& twins) {
  const size_t count = op.schema().returns().size();
  for (size_t i = stack->size() - count; i < stack->size(); i++) {
    auto& value = (*stack)[i];
    if (value.isTensor()) {
      value = twins.to_mps(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(twins.to_mps(tensor));
      value = list;
    }
  }
}

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  const Kind kind = kind_of(op);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (kind == kMetadata) {
    op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
    return;
  }
  if (kind == kMissing || kind == kFallback)
    fall_back(op, kind);
  Twins twins;
  Arguments(op, kind).to_cpu(stack, twins);
  op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
  twins.write_back();
  results_to_mps(op, stack, twins);
}

// A tensor of these layouts must not silently become something else.
void refuse_layout(const c10::OperatorHandle& op, Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "Simulated MPS does not cover sparse, nested and quantized tensors (operator '",
      op.schema().operator_name(),
      "'). A Mac has sparse_coo and sparse_csr tensors on mps since PyTorch 2.9: use "
      "the CPU here.");
}

// The stock composite asks a DispatchStub that a Linux build lacks for MPS. On a Mac, training
// takes this path as well.
at::Tensor attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, mask, dropout, is_causal, std::nullopt, scale, enable_gqa));
}

TORCH_LIBRARY_IMPL(_, MPS, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}
TORCH_LIBRARY_IMPL(_, SparseMPS, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrMPS, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorMPS, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(_, QuantizedMPS, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
}
TORCH_LIBRARY_IMPL(aten, MPS, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("scaled_dot_product_attention", attention);
}
TORCH_LIBRARY_IMPL(aten, AutogradMPS, library) {
  library.impl("scaled_dot_product_attention", attention);
}

}  // namespace

namespace at {
C10_REGISTER_CLASS(MPSHooksRegistry, MPSHooks, MpsHooks)
}

// On a CUDA build two accelerators would be compiled in: PyTorch refuses to choose between them,
// and autograd would ask CUDA for streams. A Mac has no CUDA. `import torch` has made the hooks
// object already and handed out references to it, so its virtual table is exchanged for that of
// the stock "no CUDA here" hooks.
void hide_cuda() {
  static auto* none = new at::CUDAHooksInterface;
  auto* hooks = const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
  *reinterpret_cast<void**>(hooks) = *reinterpret_cast<void**>(none);
}

// Called through ctypes: no exception may leave them. Each returns null or what went wrong.
namespace {
std::string* last_error = new std::string;

template <class Function>
const char* guarded(Function function) {
  try {
    function();
    return nullptr;
  } catch (const std::exception& error) {
    *last_error = error.what();
    return last_error->c_str();
  }
}
}  // namespace

extern "C" {

// Says of which kind an operator ("aten::add.Tensor") is. With `registered`, its MPS kernel is set,
// as on a Mac; otherwise the fallback meets it, if no composite kernel does before.
const char* simulated_mps_add_op(const char* name, int kind, int registered) {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", DispatchKey::MPS, __FILE__, __LINE__);
  return guarded([&] {
    (*kinds)[name] = static_cast<Kind>(kind);
    if (registered)
      library->impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  });
}

const char* simulated_mps_enable(int64_t recommended) {
  return guarded([&] {
    recommended_bytes = recommended;
    const char* fallback = std::getenv("PYTORCH_ENABLE_MPS_FALLBACK");
    fallback_enabled = fallback && std::string(fallback) != "0";  // "false" and "" turn it on
    hide_cuda();
    c10::SetAllocator(c10::DeviceType::MPS, allocator());
    c10::impl::device_guard_impl_registry[size_t(c10::DeviceType::MPS)].store(new MpsGuard);
    pthread_atfork(nullptr, nullptr, [] { forked = peak_bytes > 0; });
  });
}
}
