// Searches for best keys: of many queries, again and again, or many small ones of one shape. See finder.h, searcher.h.

#include "finder.h"
#include "groups.h"

extern "C" int32_t weft_nearest_groups(WeftGroups* all) {
  try {
    bool good = false;
    weft::Team::run(all->threads, [&](weft::Team& team) { good = weft::find_in_groups(*all, team); });
    return good ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

extern "C" void* weft_finder(const WeftQueries* queries) {
  try {
    return new weft::Finder(*queries);
  } catch (const std::exception&) {
    return nullptr;
  }
}

extern "C" void weft_finder_free(void* finder) { delete (weft::Finder*)finder; }

extern "C" int32_t weft_find(void* finder, WeftFind* ask) {
  try {
    bool good = false;
    weft::Team::run(ask->threads, [&](weft::Team& team) { good = ((weft::Finder*)finder)->find(*ask, team); });
    return good ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}
