// SPDX-License-Identifier: MIT
//
// QSF_WITH_SANITIZER is defined in builds with an address, thread or memory sanitizer. Their memory
// figures do not hold for the product, because of larger stack frames and shadow memory.

#ifndef QSF_BASE_SANITIZER_H_
#define QSF_BASE_SANITIZER_H_

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QSF_WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define QSF_WITH_SANITIZER 1
#endif
#endif

#endif  // QSF_BASE_SANITIZER_H_
