/* SPDX-License-Identifier: MIT
 *
 * LoRA adapters: what a session adds to a model's products, without changing the model. A part of
 * qsf/qsf.h, which has the conventions and includes it. docs/adapters.md has the use.
 *
 * Adapters are numbered from 1 on in the order of qsf_config_add_adapter; 0 is none. All of them
 * stay in memory, as a part of the budget. Sessions of one step may have different ones.
 */
#ifndef QSF_ADAPTERS_H_
#define QSF_ADAPTERS_H_

#ifndef QSF_QSF_H_
#error "include qsf/qsf.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Adds an adapter file (docs/format-adapter.md), as `qsf convert` makes them. `name`, NULL for that
 * of the file, has to differ from the names of the others. Both are copied.
 * Errors of opening  QSF_NOT_FOUND, QSF_IO, QSF_CORRUPT: the file; QSF_INVALID_ARGUMENT: made for
 *                    another model, or a name that is taken; QSF_OUT_OF_BUDGET */
QSF_API void qsf_config_add_adapter(QSFConfig* config, const char* path, const char* name);
/* Chooses the adapter of sessions, chats and texts that choose none, and how much of it is added
 * (1: as trained). Default  0: none */
QSF_API void qsf_config_set_adapter(QSFConfig* config, int adapter, float scale);

/* Returns  how many adapters the engine has; 0 for NULL */
QSF_API int qsf_engine_adapter_count(const QSFEngine* engine);
/* Returns  the name of an adapter, valid as long as the engine; NULL where there is none */
QSF_API const char* qsf_engine_adapter_name(const QSFEngine* engine, int adapter);

/* Chooses the adapter of a session without tokens. A fork has that of its origin. A session file is
 * loaded only with the adapter and scale that it was saved with.
 * Errors  QSF_INVALID_ARGUMENT: the session has tokens or generates, there is no such adapter, or
 *         the scale is not finite. Unchanged on failure */
QSF_API qsf_code qsf_session_set_adapter(QSFSession* session, int adapter, float scale,
                                         qsf_error* error);

#ifdef __cplusplus
}
#endif

#endif /* QSF_ADAPTERS_H_ */
