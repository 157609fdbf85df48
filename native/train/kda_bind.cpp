#include "train/bind.h"

void bind_kda(nanobind::module_ &m) { (void)m; }
