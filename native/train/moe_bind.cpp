#include "train/bind.h"

void bind_moe(nanobind::module_ &m) { (void)m; }
