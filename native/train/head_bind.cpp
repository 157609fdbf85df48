#include "train/bind.h"

void bind_head(nanobind::module_ &m) { (void)m; }
