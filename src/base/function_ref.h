// SPDX-License-Identifier: MIT
//
// FunctionRef: a reference to something callable, two pointers wide, never allocating.
//
// For parameters alone: it does not own what it refers to, so it must not outlive the call it is
// passed to.

#ifndef QSF_BASE_FUNCTION_REF_H_
#define QSF_BASE_FUNCTION_REF_H_

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace qsf {

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
  requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> &&
           std::is_invocable_r_v<R, F&, Args...>) FunctionRef(F&& callable)
  noexcept {
    using Target = std::remove_reference_t<F>;
    if constexpr (std::is_function_v<Target>) {
      target_.function = reinterpret_cast<void (*)()>(&callable);
      call_ = [](Target_ target, Args... args) -> R {
        return reinterpret_cast<Target*>(target.function)(std::forward<Args>(args)...);
      };
    } else {
      target_.object = std::addressof(callable);
      call_ = [](Target_ target, Args... args) -> R {
        return (*static_cast<Target*>(const_cast<void*>(target.object)))(
            std::forward<Args>(args)...);
      };
    }
  }

  R operator()(Args... args) const { return call_(target_, std::forward<Args>(args)...); }

 private:
  union Target_ {
    const void* object;
    void (*function)();
  };
  Target_ target_;
  R (*call_)(Target_, Args...);
};

}  // namespace qsf

#endif  // QSF_BASE_FUNCTION_REF_H_
