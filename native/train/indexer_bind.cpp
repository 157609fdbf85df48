#include "train/bind.h"

void bind_indexer(nanobind::module_ &m) { (void)m; }
