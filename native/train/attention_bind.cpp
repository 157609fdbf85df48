#include "train/bind.h"

void bind_attention(nanobind::module_ &m) { (void)m; }
